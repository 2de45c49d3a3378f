//! Children that are controlled by the objects that a controller reconciles.

use kube::ResourceExt as _;

use super::{Kit, Watched};
use crate::cache::{Cache, Changed, Key, controller_of};

/// What becomes of children that nothing controls.
pub enum Orphans<O, C> {
    /// Nobody cares.
    Ignored,
    /// They wake the owners of their namespace that may adopt them, as this function says.
    Offered(fn(&O, &C) -> bool),
}

impl Kit {
    /// Children by controller reference: every change of one wakes its owner, the one from before as well, and what the owner
    /// [expects](Kit::expected) of it is taken off. A reference counts only by its UID: an owner that was made again under
    /// the same name is another.
    pub fn owns<O: Watched, C: Watched>(self, children: &Cache<C>, owners: &Cache<O>, orphans: Orphans<O, C>) -> Self {
        let wakes = self.owners_of(owners, orphans);
        self.watch(children, wakes)
    }

    /// The same for owners of hundreds, see [`Kit::watch_many`]. What an owner expects is taken off at once.
    pub fn owns_many<O: Watched, C: Watched>(
        self,
        children: &Cache<C>,
        owners: &Cache<O>,
        orphans: Orphans<O, C>,
    ) -> Self {
        let wakes = self.owners_of(owners, orphans);
        self.watch_many(children, wakes)
    }

    fn owners_of<O: Watched, C: Watched>(
        &self,
        owners: &Cache<O>,
        orphans: Orphans<O, C>,
    ) -> impl Fn(&Changed<C>) -> Vec<Key> + Send + use<O, C> {
        let (owners, expected) = (owners.clone(), self.expected());
        move |change| {
            let [before, now] = [&change.old, &change.new].map(|child| owner(&owners, &**child.as_ref()?));
            expected.saw(before.as_ref(), now.as_ref(), change);
            let mut woken: Vec<Key> = before.into_iter().chain(now).collect();
            if let (Orphans::Offered(may_adopt), Some(child)) = (&orphans, &change.new)
                && controller_of(&**child).is_empty()
            {
                let near = owners.all().into_iter().filter(|owner| owner.meta().namespace == child.meta().namespace);
                woken.extend(near.filter(|owner| may_adopt(owner, child)).map(|owner| Key::of(&*owner)));
            }
            woken
        }
    }
}

/// The object that controls a child, if it is one of these.
fn owner<O: Watched, C: Watched>(owners: &Cache<O>, child: &C) -> Option<Key> {
    let kind = O::kind(&());
    let reference = child.owner_references().iter().find(|one| one.controller == Some(true) && one.kind == kind)?;
    let key = Key { namespace: child.namespace().unwrap_or_default(), name: reference.name.clone() };
    owners.get(&key).filter(|owner| owner.uid().as_ref() == Some(&reference.uid)).map(|_| key)
}
