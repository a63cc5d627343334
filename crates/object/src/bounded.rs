//! Maps and texts with a bound.

pub use lru::LruCache;
use std::hash::Hash;
use std::num::NonZeroUsize;

/// An empty map of at most `len_max` entries, at least one. A new entry replaces the least recently
/// used one of a full map. Takes memory only for what it holds.
///
/// ```
/// let mut recent = setpoint_object::bounded::lru(2);
/// recent.put("a", 1);
/// recent.put("b", 2);
/// assert_eq!(recent.get("a"), Some(&1));
/// assert_eq!(recent.push("c", 3), Some(("b", 2)));
/// ```
pub fn lru<K: Eq + Hash, V>(len_max: usize) -> LruCache<K, V> {
    // A map that is made with its bound allocates room for all of it.
    let mut map = LruCache::unbounded();
    map.resize(NonZeroUsize::new(len_max).unwrap_or(NonZeroUsize::MIN));
    map
}

/// The beginning of a text: at most so many bytes. For what other servers say, which clients see.
///
/// ```
/// assert_eq!(setpoint_object::bounded::text("aé".to_owned(), 2), "a");
/// ```
pub fn text(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.shrink_to_fit();
    }
    text
}

/// A bounded map whose entries expire. A new entry replaces the least recently used one of a full
/// map, expired or not. `T` is a time; the map reads no clock.
#[derive(Debug)]
pub struct Expiring<K: Eq + Hash, V, T>(LruCache<K, (T, V)>);

impl<K: Eq + Hash, V, T: Copy + Ord> Expiring<K, V, T> {
    /// An empty map of at most `len_max` entries, at least one.
    pub fn new(len_max: usize) -> Self {
        Self(lru(len_max))
    }

    /// The value of a key, unless it ended by `now`. Counts as a use.
    pub fn get(&mut self, key: &K, now: T) -> Option<&V> {
        if self.0.peek(key)?.0 <= now {
            self.0.pop(key);
            return None;
        }
        self.0.get(key).map(|(_, value)| value)
    }

    /// Sets the value of a key until `end`.
    pub fn put(&mut self, key: K, value: V, end: T) {
        self.0.put(key, (end, value));
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &K) {
        self.0.pop(key);
    }

    /// The keys of all entries, expired ones too, least recently used first.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().rev().map(|(key, _)| key)
    }

    /// How many entries it holds, expired ones too.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Expiring;

    #[test]
    fn entries_expire_and_the_least_recently_used_goes_first() {
        let mut map = Expiring::new(2);
        map.put("a", 1, 10);
        map.put("b", 2, 5);
        assert_eq!(map.get(&"a", 4), Some(&1));
        map.put("c", 3, 20);
        assert_eq!(map.get(&"b", 4), None, "b has to go");
        assert_eq!(map.keys().copied().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(map.get(&"a", 10), None);
        assert_eq!(map.len(), 1, "an expired one is removed");
        map.put("c", 4, 30);
        assert_eq!(map.get(&"c", 29), Some(&4));
        map.remove(&"c");
        assert!(map.is_empty());
    }
}
