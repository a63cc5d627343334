//! Every kind of queue between a store and a server whose watches miss events.
use super::{KINDS, Line, added, deleted, updated};
use crate::controller::{Change, apply};
use crate::delta::Delta;
use crate::key::Key;
use crate::record::Record;
use crate::testing::record;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Step {
    /// Writes an object; the watch may miss it.
    Write(u8, bool),
    /// Deletes one; the watch may miss it.
    Delete(u8, bool),
    Relist,
    Resync,
    Process,
    /// Pops a batch, which is processed after the next steps.
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..5, any::<bool>()).prop_map(|(key, is_seen)| Step::Write(key, is_seen)),
        3 => (0_u8..5, any::<bool>()).prop_map(|(key, is_seen)| Step::Delete(key, is_seen)),
        2 => Just(Step::Relist),
        1 => Just(Step::Resync),
        2 => Just(Step::Process),
        2 => Just(Step::Take),
    ]
}

/// Invariant 2, for one key: `Added (Updated)* Deleted`, repeated; an unknown key may be deleted.
fn follow(seen: &mut BTreeMap<Key, Record>, change: Change<Record>) -> Result<(), TestCaseError> {
    match change {
        Change::Added { object, .. } => {
            let held = seen.insert(object.key.clone(), object);
            prop_assert!(held.is_none(), "added twice: {held:?}");
        }
        Change::Updated { old, new } => {
            let held = seen.insert(new.key.clone(), new);
            prop_assert_eq!(held, Some(old));
        }
        Change::Deleted(Record { key, .. }) | Change::DeletedFinalStateUnknown { key, .. } => {
            seen.remove(&key);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Invariants 1, 2, 4 and 15: after a relist, the store and the reported changes have the state
    /// of the server, whatever was missed, for every kind of queue and any batches.
    #[test]
    fn invariants_1_2_4_15_every_queue_leads_to_the_state_of_the_server(steps in prop::collection::vec(step(), 0..60)) {
        for kind in KINDS {
            let line = Line::new(kind);
            let (mut server, mut seen) = (BTreeMap::new(), BTreeMap::new());
            let mut taken = None;
            let list = |server: &BTreeMap<u8, Record>| Delta::ReplacedAll {
                items: server.values().cloned().collect(),
                resource_version: "1".into(),
            };
            for (version, step) in (1_u64..).zip(steps.iter().cloned().chain([Step::Relist])) {
                let is_process = matches!(step, Step::Process);
                let delta = match step {
                    Step::Write(key, is_seen) => {
                        let name = key.to_string();
                        let is_new = server.insert(key, record(&name, version)).is_none();
                        let delta = if is_new { added } else { updated };
                        is_seen.then(|| delta(&name, version))
                    }
                    Step::Delete(key, is_seen) => {
                        let was_there = server.remove(&key).is_some();
                        (was_there && is_seen).then(|| deleted(&key.to_string(), version))
                    }
                    Step::Relist => Some(list(&server)),
                    Step::Resync => Some(Delta::SyncAll),
                    Step::Process => None,
                    Step::Take => {
                        if taken.is_none() {
                            taken = line.pop();
                        }
                        continue;
                    }
                };
                let mut changes = Vec::new();
                // If the writer has to wait, the batch in process must be processed.
                let refused = match delta {
                    Some(delta) => line.queue.offer(delta).unwrap(),
                    None => None,
                };
                if (refused.is_some() || is_process)
                    && let Some(batch) = taken.take()
                {
                    apply(batch, &mut *line.store.0.lock(), |change| changes.push(change));
                }
                if let Some(delta) = refused {
                    prop_assert!(line.offer(delta), "{:?}", kind);
                }
                if is_process {
                    changes.extend(line.process());
                }
                for change in changes {
                    follow(&mut seen, change)?;
                }
            }
            if let Some(batch) = taken {
                let mut changes = Vec::new();
                apply(batch, &mut *line.store.0.lock(), |change| changes.push(change));
                for change in changes {
                    follow(&mut seen, change)?;
                }
            }
            for change in line.process() {
                follow(&mut seen, change)?;
            }
            let server: BTreeMap<Key, Record> =
                server.into_values().map(|object| (object.key.clone(), object)).collect();
            prop_assert_eq!(&*line.store.0.lock(), &server, "{:?}", kind);
            prop_assert_eq!(&seen, &server, "{:?}", kind);
        }
    }
}
