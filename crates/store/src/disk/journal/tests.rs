//! Tests of frames and laps.

use super::*;
use proptest::prelude::*;
use redb::backends::InMemoryBackend;

const ID: u64 = 77;
/// Where frames begin.
const FIRST: usize = HEADER_BYTES as usize;

fn entries(after: u64, records: &[Vec<u8>]) -> Vec<Entry> {
    let entry = |(n, record): (u64, &Vec<u8>)| Entry {
        revision: after + 1 + n,
        expires_ms: n % 3,
        records: vec![record.clone(), vec![7; 3]],
    };
    (0..).zip(records).map(entry).collect()
}

fn journal(filed: u64) -> Journal {
    Journal::create(Box::new(InMemoryBackend::new()), ID, filed).unwrap()
}

fn read(file: &dyn StorageBackend, filed: u64) -> io::Result<Found> {
    super::read(file, Mark::Id(ID), filed)
}

fn bytes(journal: &Journal) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(journal.file.len().unwrap()).unwrap()];
    journal.file.read(0, &mut bytes).unwrap();
    bytes
}

fn over(bytes: &[u8]) -> Box<dyn StorageBackend> {
    let file = InMemoryBackend::new();
    file.set_len(bytes.len() as u64).unwrap();
    file.write(0, bytes).unwrap();
    Box::new(file)
}

fn batches() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let record = proptest::collection::vec(any::<u8>(), 0..700);
    proptest::collection::vec(proptest::collection::vec(record, 1..4), 1..6)
}

proptest! {
    /// Batches are read back, those of an earlier lap and of another file are not.
    #[test]
    fn batches_of_the_lap_are_read_back(before in batches(), after in batches()) {
        let mut journal = journal(5);
        let mut revision = 5;
        for batch in &before {
            prop_assert!(journal.append(&entries(revision, batch)).unwrap());
            revision += batch.len() as u64;
        }
        let filed = revision;
        journal.begin(filed);
        let mut written = Vec::new();
        for batch in &after {
            let batch = entries(revision, batch);
            prop_assert!(journal.append(&batch).unwrap());
            revision += batch.len() as u64;
            written.extend(batch);
        }
        let found = read(&*journal.file, filed).unwrap();
        prop_assert_eq!((found.entries, found.damage), (written, None));
        for other in [5, filed - 1, filed + 1, revision] {
            prop_assert!(read(&*journal.file, other).unwrap().entries.is_empty());
        }
    }

    /// Each flipped bit in a frame ends the reading before that frame. It is reported if
    /// another frame follows.
    #[test]
    fn damage_is_found(batches in batches(), bit in any::<proptest::sample::Index>()) {
        let mut journal = journal(5);
        let (mut revision, mut ends) = (5, Vec::new());
        for batch in &batches {
            prop_assert!(journal.append(&entries(revision, batch)).unwrap());
            revision += batch.len() as u64;
            ends.push((usize::try_from(journal.at).unwrap(), revision));
        }
        let mut bytes = bytes(&journal);
        let at = bit.index(usize::try_from(journal.at).unwrap() * 8);
        bytes[FIRST + at / 8] ^= 1 << (at % 8);
        let found = read(&*over(&bytes), 5).unwrap();
        let damaged = ends.iter().position(|(end, _)| at / 8 < *end).unwrap();
        let before = damaged.checked_sub(1).map_or(5, |n| ends[n].1);
        let newest = found.entries.last().map_or(5, |entry| entry.revision);
        // The padding of a frame has no meaning.
        let is_padding = newest == revision && found.damage.is_none();
        let is_newest = damaged == batches.len() - 1;
        let is_found = newest == before && (found.damage.is_some() || is_newest);
        prop_assert!(is_padding || is_found, "{} of {}", newest, revision);
    }

    /// Laps are read back at each moment, whether the older one was filed or not.
    #[test]
    fn laps_are_read_back(steps in proptest::collection::vec(0_usize..9, 1..40)) {
        let mut journal = journal(5);
        // The revision of redb's file, what it has not, and where the current lap begins.
        let (mut filed, mut newest, mut unfiled, mut lap) = (5, 5, Vec::new(), 5);
        for step in steps {
            match step {
                // A transaction of the engine.
                0 => {
                    newest += 3;
                    (filed, lap) = (newest, newest);
                    unfiled.clear();
                    journal.begin(filed);
                }
                // The sealed lap was filed.
                1 => {
                    filed = lap;
                    unfiled.retain(|entry: &Entry| entry.revision > filed);
                }
                2 | 3 if filed == lap && newest > lap => {
                    lap = newest;
                    journal.turn(lap);
                }
                n => {
                    let batch = entries(newest, &vec![vec![7; 100 * n]; n]);
                    prop_assert!(journal.append(&batch).unwrap());
                    newest += batch.len() as u64;
                    unfiled.extend(batch);
                }
            }
            let found = read(&*journal.file, filed).unwrap();
            prop_assert_eq!((&found.entries, found.damage), (&unfiled, None));
            // After the sealed lap was filed, and that is not published.
            let found = read(&*journal.file, lap).unwrap();
            let later = unfiled.iter().filter(|entry| entry.revision > lap).cloned();
            prop_assert_eq!((found.entries, found.damage), (later.collect(), None));
        }
    }

    #[test]
    fn any_bytes_end_the_reading(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        for mark in [Mark::Unused, Mark::Headless, Mark::Id(ID)] {
            prop_assert!(super::read(&*over(&bytes), mark, 1).unwrap().entries.is_empty());
        }
        let _ = decode(&bytes, 1, 3);
    }
}

#[test]
fn a_frame_that_is_damaged_before_another_is_reported() {
    let mut journal = journal(1);
    for revision in 1..4 {
        assert!(journal.append(&entries(revision, &[vec![1; 100]])).unwrap());
    }
    let whole = bytes(&journal);
    let frame = SECTOR;
    for (at, n_read, is_damage) in [
        (100, 0, true),
        (frame + 5, 1, true),
        (frame + 100, 1, true),
        (2 * frame + 5, 2, false),
        (2 * frame + 100, 2, false),
    ] {
        let mut bytes = whole.clone();
        bytes[FIRST + at] ^= 1;
        let found = read(&*over(&bytes), 1).unwrap();
        assert_eq!((found.entries.len(), found.damage.is_some()), (n_read, is_damage), "{at}");
    }
}

#[test]
fn damage_before_the_second_lap_is_reported_and_cleared() {
    let mut journal = journal(1);
    for (revision, is_last) in [(1, false), (2, true), (3, true)] {
        assert!(journal.append(&entries(revision, &[vec![1; 100]])).unwrap());
        if is_last {
            journal.turn(revision + 1);
        }
    }
    assert_eq!(read(&*journal.file, 1).unwrap().entries.len(), 3);
    let whole = bytes(&journal);
    for (at, filed, n_read, is_damage) in [
        (100, 1, 0, true),
        // The newest frame of the first lap: it has a successor in the second one.
        (SECTOR + 5, 1, 1, true),
        (SECTOR + 100, 1, 1, true),
        (SECTOR + 100, 3, 1, false),
        (HALF_BYTES as usize + 5, 1, 2, false),
        (HALF_BYTES as usize + 100, 1, 2, false),
    ] {
        let mut bytes = whole.clone();
        bytes[FIRST + at] ^= 1;
        let found = read(&*over(&bytes), filed).unwrap();
        let found = (found.entries.len(), found.damage.is_some());
        assert_eq!(found, (n_read, is_damage), "byte {at}, from {filed}");
    }
    // A file that is older than both laps.
    assert!(read(&*journal.file, 0).unwrap().damage.is_some());
    let journal = Journal::create(journal.file, ID, 9).unwrap();
    for filed in 0..5 {
        assert_eq!(read(&*journal.file, filed).unwrap().damage, None);
        assert!(read(&*journal.file, filed).unwrap().entries.is_empty());
    }
}

/// Which files a mark accepts.
#[test]
fn a_marked_journal_must_have_the_id() {
    let mut journal = journal(1);
    assert!(journal.append(&entries(1, &[vec![1; 100]])).unwrap());
    let with_header = bytes(&journal);
    let headless = with_header[FIRST..].to_vec();
    let mut torn = with_header.clone();
    torn[13] ^= 1;
    let cases: [(Mark, &[u8], Option<&str>, usize); 11] = [
        (Mark::Id(ID), &with_header, None, 1),
        (Mark::Id(ID + 1), &with_header, Some("is another store's"), 0),
        (Mark::Id(ID), &headless, Some("has no valid header"), 0),
        (Mark::Id(ID), &torn, Some("has no valid header"), 0),
        (Mark::Id(ID), &with_header[..19], Some("has no valid header"), 0),
        (Mark::Id(ID), &[], Some("is empty"), 0),
        (Mark::Headless, &headless, None, 1),
        (Mark::Headless, &[], None, 0),
        (Mark::Headless, &with_header, Some("is another store's"), 0),
        (Mark::Unused, &with_header, None, 0),
        (Mark::Unused, &headless, None, 0),
    ];
    for (n, (mark, bytes, damage, n_read)) in cases.into_iter().enumerate() {
        let found = super::read(&*over(bytes), mark, 1).unwrap();
        assert_eq!(found.entries.len(), n_read, "case {n}");
        assert_eq!(found.damage.is_some(), damage.is_some(), "case {n}: {:?}", found.damage);
        assert!(found.damage.unwrap_or_default().starts_with(damage.unwrap_or_default()), "{n}");
    }
    // An old file in the place of redb's.
    for mark in [Mark::Id(ID), Mark::Unused] {
        assert!(super::read(&*over(&with_header), mark, 0).unwrap().damage.is_some());
    }
    // Until the header is whole, a file without a mark has no effect.
    for length in 0..FIRST {
        let found = super::read(&*over(&with_header[..length]), Mark::Unused, 1).unwrap();
        assert_eq!(found.damage, None);
    }
}

#[test]
fn a_lap_is_bounded() {
    let mut journal = journal(1);
    let mut revision = 1;
    while journal.append(&entries(revision, &[vec![1; 100_000]])).unwrap() {
        revision += 1;
    }
    assert!((8..12).contains(&revision), "{revision}");
    assert!(journal.file.len().unwrap() <= HEADER_BYTES + LAP_BYTES_MAX);
    assert_eq!(read(&*journal.file, 1).unwrap().entries.len() as u64, revision - 1);
    journal.turn(revision);
    while journal.append(&entries(revision, &[vec![1; 100_000]])).unwrap() {
        revision += 1;
    }
    assert!((17..23).contains(&revision), "{revision}");
    assert!(journal.file.len().unwrap() <= HEADER_BYTES + HALF_BYTES + LAP_BYTES_MAX);
    assert_eq!(read(&*journal.file, 1).unwrap().entries.len() as u64, revision - 1);
}
