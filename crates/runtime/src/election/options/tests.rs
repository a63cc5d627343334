//! LE-1 to LE-5.

use super::*;
use crate::election::{OptionsError, machine_identity, options::namespace_of};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn le_1_unsafe_durations_are_refused() {
    let spans = |lease, renew, retry| Timings { lease, renew, retry }.validate().is_ok();
    assert_eq!(Timings::default().validate().ok(), Some(()));
    assert!(!spans(10 * SECOND, 10 * SECOND, 2 * SECOND), "lease = renew deadline");
    assert!(!spans(15 * SECOND, 6 * SECOND, 5 * SECOND), "renew deadline = 1.2 × retry");
    assert!(spans(15 * SECOND, 6 * SECOND + Duration::from_nanos(1), 5 * SECOND));
    assert!(!spans(15 * SECOND, 10 * SECOND, Duration::ZERO));
    assert!(!spans(Duration::ZERO, Duration::ZERO, Duration::ZERO));
    assert!(!spans(SECOND * 3 / 2, SECOND, SECOND / 2), "a Lease holds whole seconds");
    assert!(!spans(Duration::MAX, SECOND, SECOND / 2));
}

#[test]
fn le_2_other_locks_are_refused_with_advice() {
    let options = ElectionOptions::new("a").lock("configmapsleases");
    let error = options.validate().unwrap_err();
    assert!(matches!(&error, OptionsError::Lock { .. }));
    assert!(error.to_string().contains("then one that holds \"leases\""), "{error}");
}

#[test]
fn le_3_names_are_required_and_the_namespace_is_the_pods() {
    assert!(matches!(ElectionOptions::new("").validate(), Err(OptionsError::NoName)));
    assert!(matches!(
        ElectionOptions::new("a").identity("").validate(),
        Err(OptionsError::NoIdentity)
    ));
    let folder = std::env::temp_dir().join(format!("setpoint-{}", machine_identity().unwrap()));
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("namespace");
    assert!(matches!(namespace_of(&file), Err(OptionsError::NoNamespace { .. })));
    std::fs::write(&file, "\n").unwrap();
    assert!(matches!(namespace_of(&file), Err(OptionsError::NoNamespace { .. })));
    std::fs::write(&file, "team-a\n").unwrap();
    assert_eq!(namespace_of(&file).unwrap(), "team-a");
    std::fs::remove_dir_all(&folder).unwrap();
    let given = ElectionOptions::from("a").namespace("given").resolved().unwrap();
    assert_eq!(given.namespace.as_deref(), Some("given"));
    assert!(given.identity.unwrap().contains('_'), "the machine's");
}

#[test]
fn le_4_identity_is_the_host_and_a_uuid_and_another_each_time() {
    let (one, two) = (machine_identity().unwrap(), machine_identity().unwrap());
    let (host, uuid) = one.rsplit_once('_').unwrap();
    assert!(!host.is_empty());
    assert_eq!(uuid.len(), 36);
    assert_ne!(one, two);
}

#[test]
fn le_5_request_time_out_is_half_the_renew_deadline_and_at_least_a_second() {
    let timeout = |renew| Timings { renew, ..Timings::default() }.request_timeout();
    assert_eq!(timeout(10 * SECOND), 5 * SECOND);
    assert_eq!(timeout(SECOND), SECOND);
}
