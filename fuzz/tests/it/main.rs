//! The corpus, fed to the checks again.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

/// The most that a committed input may be, bytes: it is there to reach code, not to fill the repository.
const INPUT_BYTES_MAX: u64 = 4096;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut n_inputs = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.metadata().unwrap().len() <= INPUT_BYTES_MAX, "{}", path.display());
        // Shown when the check fails.
        println!("{}", path.display());
        check(&std::fs::read(&path).unwrap());
        n_inputs += 1;
    }
    assert!((10..=100).contains(&n_inputs), "{n_inputs} inputs in {}", folder.display());
}

#[test]
fn encryption_holds_for_the_corpus() {
    replay("encryption", setpoint_fuzz::encryption::check);
}

#[test]
fn frames_hold_for_the_corpus() {
    replay("frames", setpoint_fuzz::frames::check);
}

#[test]
fn lists_hold_for_the_corpus() {
    replay("list", setpoint_fuzz::list::check);
}

#[test]
fn resource_versions_hold_for_the_corpus() {
    replay("resource_version", setpoint_fuzz::resource_version::check);
}

#[test]
fn reviews_hold_for_the_corpus() {
    replay("review", setpoint_fuzz::review::check);
}

#[test]
fn skims_hold_for_the_corpus() {
    replay("skim", setpoint_fuzz::skim::check);
}
