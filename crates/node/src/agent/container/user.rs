//! Who a container's process is.

use std::io::Read as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{MakeError, Making, Source};
use crate::runtime::spec::User;

/// The most that is read of an image's list of users.
const MOST: u64 = 1 << 20;

/// What the pod says, or else the image.
pub(super) fn user(making: &Making<'_>) -> Result<User, MakeError> {
    let held = match making.source {
        Source::Machine { user, .. } => return Ok(User { uid: user, gid: user, groups: Vec::new() }),
        Source::Image(held) => held,
    };
    let own = making.container.security_context.as_ref();
    let pod = making.spec.security_context.as_ref();
    let number = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    let uid = number(own.and_then(|own| own.run_as_user).or_else(|| pod.and_then(|pod| pod.run_as_user)));
    let gid = number(own.and_then(|own| own.run_as_group).or_else(|| pod.and_then(|pod| pod.run_as_group)));
    let lists = Lists { passwd: read(&held.root, "etc/passwd"), group: read(&held.root, "etc/group") };
    let mut user = match uid {
        Some(uid) => lists.find(&uid.to_string())?,
        None => lists.find(&held.config.user)?,
    };
    if let Some(gid) = gid {
        user.gid = gid;
    }
    let more = pod.and_then(|pod| pod.supplemental_groups.as_deref()).unwrap_or_default();
    let fs_group = pod.and_then(|pod| pod.fs_group);
    user.groups.extend(more.iter().copied().chain(fs_group).filter_map(|group| number(Some(group))));
    user.groups.sort_unstable();
    user.groups.dedup();
    let non_root = own.and_then(|own| own.run_as_non_root).or_else(|| pod.and_then(|pod| pod.run_as_non_root));
    if non_root == Some(true) && user.uid == 0 {
        let pod = making.pod.metadata.name.clone().unwrap_or_default();
        return Err(MakeError::Root { pod, container: making.container.name.clone() });
    }
    Ok(user)
}

/// An image's users and groups.
struct Lists {
    passwd: String,
    group: String,
}

impl Lists {
    /// `user`, `user:group`, by name or number; nobody is root.
    fn find(&self, text: &str) -> Result<User, MakeError> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let user = if user.is_empty() { "0" } else { user };
        let mut entries = self.passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let entry = entries.find(|fields| {
            fields.first() == Some(&user) || user.parse::<u32>().is_ok() && fields.get(2) == Some(&user)
        });
        let field = |index: usize| {
            entry.as_ref().and_then(|fields| fields.get(index)).and_then(|field| field.parse::<u32>().ok())
        };
        let uid = field(2).or_else(|| user.parse().ok()).ok_or_else(|| MakeError::NoUser(user.to_owned()))?;
        let name = entry.as_ref().and_then(|fields| fields.first().copied());
        let (gid, groups) = if group.is_empty() {
            (field(3).unwrap_or(0), name.map(|name| self.memberships(name)).unwrap_or_default())
        } else {
            (self.group(group)?, Vec::new())
        };
        Ok(User { uid, gid, groups })
    }

    fn group(&self, group: &str) -> Result<u32, MakeError> {
        if let Ok(number) = group.parse() {
            return Ok(number);
        }
        let mut entries = self.group.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let entry = entries.find(|fields| fields.first() == Some(&group));
        let number = entry.and_then(|fields| fields.get(2).and_then(|field| field.parse().ok()));
        number.ok_or_else(|| MakeError::NoGroup(group.to_owned()))
    }

    fn memberships(&self, user: &str) -> Vec<u32> {
        let entries = self.group.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let of = entries.filter(|fields| fields.get(3).is_some_and(|users| users.split(',').any(|one| one == user)));
        of.filter_map(|fields| fields.get(2).and_then(|field| field.parse().ok())).collect()
    }
}

/// A file of an image; no link in it leads out of the image. What is not there is empty.
fn read(root: &Path, path: &str) -> String {
    let folder = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let file = folder.and_then(|folder| {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat2(folder, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
    });
    let Ok(file) = file else { return String::new() };
    let mut text = Vec::new();
    let file = std::fs::File::from(file);
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return String::new();
    }
    match file.take(MOST).read_to_end(&mut text) {
        Ok(_) => String::from_utf8_lossy(&text).into_owned(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let lists = Lists {
            passwd: "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/:/bin/sh\n".to_owned(),
            group: "root:x:0:\nlog:x:4:web,other\nwebs:x:34:\n".to_owned(),
        };
        let of = |text: &str| lists.find(text).map(|user| (user.uid, user.gid, user.groups));
        assert_eq!(of(""), Ok((0, 0, vec![])));
        assert_eq!(of("web"), Ok((33, 34, vec![4])));
        assert_eq!(of("33"), Ok((33, 34, vec![4])));
        assert_eq!(of("1000"), Ok((1000, 0, vec![])));
        assert_eq!(of("web:log"), Ok((33, 4, vec![])));
        assert_eq!(of("7:8"), Ok((7, 8, vec![])));
        assert_eq!(of("nobody"), Err(MakeError::NoUser("nobody".to_owned())));
        assert_eq!(of("web:none"), Err(MakeError::NoGroup("none".to_owned())));
    }

    #[test]
    fn no_link_leads_out_of_an_image() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("etc")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("etc/passwd")).unwrap();
        assert_eq!(read(root.path(), "etc/passwd"), "", "it leads to itself inside the image");
    }
}
