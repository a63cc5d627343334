//! The table compared with a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The slots of keys. The test chooses the hashes.
#[derive(Default)]
struct Slots {
    table: Table,
    /// Key and hash per slot.
    slots: Vec<Option<(u16, u32)>>,
    model: BTreeMap<u16, SlotIdx>,
    n_rebuilt: usize,
}

impl Slots {
    fn find(&self, key: u16, hash: u32) -> Result<SlotIdx, Option<Vacancy>> {
        let is_it = |idx: SlotIdx| matches!(self.slots.get(idx as usize), Some(Some((it, _))) if *it == key);
        self.table.find(hash, is_it)
    }

    fn toggle(&mut self, key: u16, hash: u32) {
        match self.find(key, hash) {
            Ok(idx) => {
                assert_eq!(self.model.remove(&key), Some(idx));
                self.table.remove(hash, idx);
                self.slots[idx as usize] = None;
            }
            Err(mut vacancy) => {
                if vacancy.is_none() {
                    assert!(!self.table.is_moving(), "all have moved before the table is full");
                    let end = self.slots.len();
                    self.table.make_room(end, |idx| Some(self.slots[idx as usize]?.1));
                    self.n_rebuilt += 1;
                    vacancy = self.find(key, hash).unwrap_err();
                }
                let free = self.slots.iter().position(Option::is_none);
                let idx = free.unwrap_or_else(|| {
                    self.slots.push(None);
                    self.slots.len() - 1
                });
                self.slots[idx] = Some((key, hash));
                self.table.insert(vacancy.unwrap(), hash, idx as SlotIdx);
                self.table.move_some(|idx| Some(self.slots[idx as usize]?.1));
                assert_eq!(self.model.insert(key, idx as SlotIdx), None);
            }
        }
        assert_eq!(self.table.len(), self.model.len());
    }
}

/// Hashes from far apart to all equal, including both ends of the table.
fn hash(key: u16, kind: u8) -> u32 {
    let spread = u32::from(key).wrapping_mul(0x9E37_79B9);
    match kind {
        0 => spread,
        1 => spread | 0xFFF0_0000,
        2 => spread >> 28 << 28,
        _ => u32::MAX,
    }
}

proptest! {
    #[test]
    fn table_agrees_with_a_map(kind in 0..4_u8, keys in proptest::collection::vec(0..200_u16, 0..1500)) {
        let mut slots = Slots::default();
        for key in keys {
            slots.toggle(key, hash(key, kind));
        }
        for key in 0..200 {
            prop_assert_eq!(slots.find(key, hash(key, kind)).ok(), slots.model.get(&key).copied());
        }
    }
}

/// Tombstones of keys that come and go never fill the table.
#[test]
fn table_stays_small_when_keys_come_and_go() {
    let mut slots = Slots::default();
    for key in 0..20_000_u16 {
        slots.toggle(key, hash(key, 0));
        if key >= 10 {
            slots.toggle(key - 10, hash(key - 10, 0));
        }
    }
    assert_eq!((slots.table.len(), slots.table.words.words.len()), (10, 64));
    assert!(slots.n_rebuilt < 1000, "{} rebuilds", slots.n_rebuilt);
}
