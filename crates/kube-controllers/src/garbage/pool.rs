//! Values that many nodes share, each kept once: kinds and namespaces.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Below this many it is not worth looking for those that nobody uses.
const FEW: usize = 64;

/// Each value once. Those that nobody uses any more go when there are twice as many as were in use.
#[derive(Debug)]
pub(super) struct Pool<T: ?Sized> {
    values: BTreeSet<Arc<T>>,
    most: usize,
}

impl<T: Ord + ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { values: BTreeSet::new(), most: FEW }
    }
}

impl<T: Ord + ?Sized> Pool<T> {
    /// The one value that equals this.
    pub(super) fn get<Q>(&mut self, value: &Q) -> Arc<T>
    where
        Arc<T>: Borrow<Q>,
        Q: Ord + ?Sized,
        for<'a> Arc<T>: From<&'a Q>,
    {
        if let Some(known) = self.values.get(value) {
            return known.clone();
        }
        if self.values.len() >= self.most {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.most = FEW.max(self.values.len() * 2);
        }
        let value = Arc::from(value);
        self.values.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_kept_once_and_goes_when_nobody_uses_it() {
        let mut pool: Pool<str> = Pool::default();
        let (first, second) = (pool.get("a"), pool.get("a"));
        assert!(Arc::ptr_eq(&first, &second));
        for number in 0..10 * FEW {
            pool.get(number.to_string().as_str());
        }
        assert!(pool.values.len() <= FEW);
        assert!(Arc::ptr_eq(&first, &pool.get("a")));
    }
}
