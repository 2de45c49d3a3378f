//! Users and groups by name, as an image has them. Its files are hostile: they are read within its root only.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

/// The most bytes of `/etc/passwd` and `/etc/group` that are looked at.
const MAX_FILE: u64 = 1 << 20;

/// Who a container's process is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Account {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Further groups that name the user as a member.
    pub groups: Vec<u32>,
}

/// Why a user is not known.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// No such user.
    #[error("the image has no user {0:?}")]
    User(String),
    /// No such group.
    #[error("the image has no group {0:?}")]
    Group(String),
    /// A file of the image could not be read.
    #[error("read /{path} of the image")]
    Io { path: &'static str, source: io::Error },
}

/// `USER[:GROUP]`, by name or number.
pub(super) fn find(root: &Path, text: &str) -> Result<Account, UserError> {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let user = if user.is_empty() { "0" } else { user };
    let passwd = read(root, "etc/passwd")?;
    let line = passwd.lines().map(fields).find(|fields| {
        let by_number = user.parse::<u32>().is_ok_and(|number| uid(fields) == Some(number));
        fields.first() == Some(&user) || by_number
    });
    let groups = read(root, "etc/group")?;
    let uid = match &line {
        Some(fields) => uid(fields),
        None => user.parse().ok(),
    };
    let uid = uid.ok_or_else(|| UserError::User(user.to_owned()))?;
    let name = line.as_ref().and_then(|fields| fields.first().copied());
    let gid = match group.filter(|group| !group.is_empty()) {
        Some(group) => group_number(&groups, group).ok_or_else(|| UserError::Group(group.to_owned()))?,
        None => line.as_ref().and_then(|fields| fields.get(3)?.parse().ok()).unwrap_or(0),
    };
    // A group that was asked for stands alone, as with other runtimes.
    let further = if group.is_none() { name.map(|name| member_of(&groups, name)).unwrap_or_default() } else { vec![] };
    Ok(Account { uid, gid, groups: further.into_iter().filter(|it| *it != gid).collect() })
}

fn fields(line: &str) -> Vec<&str> {
    line.split(':').collect()
}

fn uid(fields: &[&str]) -> Option<u32> {
    fields.get(2)?.parse().ok()
}

fn group_number(groups: &str, wanted: &str) -> Option<u32> {
    let named = groups.lines().map(fields).find(|fields| fields.first() == Some(&wanted));
    named.and_then(|fields| fields.get(2)?.parse().ok()).or_else(|| wanted.parse().ok())
}

fn member_of(groups: &str, name: &str) -> Vec<u32> {
    let has = |fields: &[&str]| fields.get(3).is_some_and(|members| members.split(',').any(|member| member == name));
    groups.lines().map(fields).filter(|fields| has(fields)).filter_map(|fields| fields.get(2)?.parse().ok()).collect()
}

/// Empty if the image has no such file.
fn read(root: &Path, path: &'static str) -> Result<String, UserError> {
    let read = || {
        let root = File::open(root)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let file = match openat2(&root, path, flags, Mode::empty(), resolve) {
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(String::new()),
            opened => File::from(opened?),
        };
        let mut bytes = Vec::new();
        if file.metadata()?.is_file() {
            file.take(MAX_FILE).read_to_end(&mut bytes)?;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().map_err(|source| UserError::Io { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/passwd"), "root:x:0:0::/:\nnginx:x:101:102::/:\n").unwrap();
        std::fs::write(root.path().join("etc/group"), "web:x:102:\nlog:x:7:other,nginx\nstaff:x:50:\n").unwrap();
        root
    }

    #[test]
    fn users_and_groups_are_found_by_name_and_number() {
        let image = image();
        let account = |uid, gid, groups: &[u32]| Account { uid, gid, groups: groups.to_vec() };
        let cases = [
            ("", account(0, 0, &[])),
            ("nginx", account(101, 102, &[7])),
            ("101", account(101, 102, &[7])),
            ("nginx:staff", account(101, 50, &[])),
            ("5:6", account(5, 6, &[])),
            ("5", account(5, 0, &[])),
            (":staff", account(0, 50, &[])),
        ];
        for (text, expected) in cases {
            assert_eq!(find(image.path(), text).unwrap(), expected, "{text:?}");
        }
        assert!(matches!(find(image.path(), "nobody"), Err(UserError::User(_))));
        assert!(matches!(find(image.path(), "0:nobody"), Err(UserError::Group(_))));
    }

    #[test]
    fn a_link_does_not_lead_out_of_the_image() {
        let image = image();
        std::fs::remove_file(image.path().join("etc/passwd")).unwrap();
        std::os::unix::fs::symlink("/../../../../etc/passwd", image.path().join("etc/passwd")).unwrap();
        assert!(find(image.path(), "root").is_err(), "the link leads to itself");
        std::fs::remove_file(image.path().join("etc/group")).unwrap();
        std::os::unix::fs::symlink(image.path().join("etc"), image.path().join("etc/group")).unwrap();
        assert!(find(image.path(), "0:root").is_err());
    }
}
