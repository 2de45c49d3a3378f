//! The user and groups of a container's process.

use super::{MakeError, Making, Source};
use crate::runtime::spec::User;

/// What the pod says, or else the image.
pub(super) fn user(making: &Making<'_>) -> Result<User, MakeError> {
    let own = making.container.security_context.as_ref();
    let pod = making.spec.security_context.as_ref();
    let number = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    let held = match making.source {
        // Images of disks are readable to the group that the pod names, whoever its user is here. Root's is not given away.
        Source::Machine { user, .. } => {
            let group = number(pod.and_then(|pod| pod.fs_group)).filter(|group| *group != 0);
            return Ok(User { uid: user, gid: user, groups: group.into_iter().collect() });
        }
        Source::Image(held) => held,
    };
    let uid = number(own.and_then(|own| own.run_as_user).or_else(|| pod.and_then(|pod| pod.run_as_user)));
    let gid = number(own.and_then(|own| own.run_as_group).or_else(|| pod.and_then(|pod| pod.run_as_group)));
    let name = uid.map_or_else(|| held.config.user.clone(), |uid| uid.to_string());
    let account = (held.account)(&name).map_err(MakeError::User)?;
    let more = pod.and_then(|pod| pod.supplemental_groups.as_deref()).unwrap_or_default();
    let fs_group = pod.and_then(|pod| pod.fs_group);
    let more = more.iter().copied().chain(fs_group).filter_map(|group| number(Some(group)));
    let mut groups: Vec<u32> = account.groups.into_iter().chain(more).collect();
    groups.sort_unstable();
    groups.dedup();
    let non_root = own.and_then(|own| own.run_as_non_root).or_else(|| pod.and_then(|pod| pod.run_as_non_root));
    if non_root == Some(true) && account.uid == 0 {
        let pod = making.pod.metadata.name.clone().unwrap_or_default();
        return Err(MakeError::Root { pod, container: making.container.name.clone() });
    }
    Ok(User { uid: account.uid, gid: gid.unwrap_or(account.gid), groups })
}
