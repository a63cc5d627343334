//! Decoded values that are soon read again.
//!
//! # Theory
//!
//! Each write of this server comes back in the feed of the watch cache, first as the new value of
//! its object and with the next change as the previous one. Its JSON is known from the write.
//! Values of other servers come twice, too. The stored bytes are the key: equal ones are of one
//! object, and decoded alike.
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_object::bounded::{LruCache, lru};

/// Maximum number of values.
const LEN_MAX: usize = 4_096;
/// Maximum bytes of all values, stored and decoded: 4 MiB.
const BYTES_MAX: usize = 4 << 20;
/// Maximum bytes of one: 128 KiB. Few objects are larger.
const ONE_BYTES_MAX: usize = 128 << 10;

/// The decoded form of recent stored values.
#[derive(Debug)]
pub(super) struct Known(Mutex<Recent>);

#[derive(Debug)]
struct Recent {
    decoded: LruCache<Bytes, Bytes>,
    n_bytes: usize,
}

impl Default for Known {
    fn default() -> Self {
        Self(Mutex::new(Recent { decoded: lru(LEN_MAX), n_bytes: 0 }))
    }
}
impl Known {
    /// The decoded form of a stored value.
    pub(super) fn get(&self, stored: &Bytes) -> Option<Bytes> {
        self.0.lock().decoded.get(stored).cloned()
    }
    /// Remembers it.
    pub(super) fn put(&self, stored: &Bytes, decoded: &Bytes) {
        let n_bytes = |(stored, decoded): (Bytes, Bytes)| stored.len() + decoded.len();
        let new_bytes = stored.len() + decoded.len();
        if new_bytes > ONE_BYTES_MAX {
            return;
        }
        let mut recent = self.0.lock();
        let Recent { decoded: values, n_bytes: sum } = &mut *recent;
        *sum += new_bytes;
        // Copied, because it may be a part of a large answer.
        let key = Bytes::copy_from_slice(stored);
        // The value that was there, or the one that was used least recently.
        *sum -= values.push(key, decoded.clone()).map_or(0, n_bytes);
        while *sum > BYTES_MAX {
            *sum -= values.pop_lru().map_or(0, n_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_bounded_in_bytes() {
        let known = Known::default();
        let value = |n: usize| Bytes::from(format!("{n:0>32768}"));
        for n in 0..1_000 {
            known.put(&value(n), &value(n));
            known.put(&value(n), &value(n));
        }
        let recent = known.0.lock();
        assert_eq!((recent.n_bytes, recent.decoded.len()), (BYTES_MAX, 64));
        drop(recent);
        assert_eq!((known.get(&value(999)), known.get(&value(0))), (Some(value(999)), None));
        let large = Bytes::from(vec![b'x'; ONE_BYTES_MAX]);
        known.put(&large, &large);
        assert_eq!(known.get(&large), None);
    }
}
