use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

fn before(seconds: u64) -> String {
    Timestamp::from_secs(1_000_000 - seconds).rfc3339_micro()
}

/// A candidate with its versions, that has renewed so many seconds ago.
fn candidate(name: &str, emulated: &str, binary: &str, renewed: u64) -> Arc<Candidate> {
    let candidate = json!({
        "metadata": {"name": name, "namespace": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "leaseName": "l", "strategy": OLDEST, "emulationVersion": emulated,
            "binaryVersion": binary, "renewTime": before(renewed),
        },
    });
    Arc::new(serde_json::from_value(candidate).unwrap())
}

fn with(candidate: &Arc<Candidate>, change: impl FnOnce(&mut Candidate)) -> Arc<Candidate> {
    let mut changed = (**candidate).clone();
    change(&mut changed);
    Arc::new(changed)
}

#[test]
fn the_oldest_emulation_version_is_best_then_the_oldest_program_then_the_oldest_candidate() {
    let name = |candidates: &[_]| best(candidates).map(|best| best.name().to_owned());
    let (a, b) = (candidate("a", "1.35.0", "1.36.0", 0), candidate("b", "1.36.0", "1.36.0", 0));
    assert_eq!(name(&[b.clone(), a.clone()]).as_deref(), Some("a"));
    let c = candidate("c", "1.35.0", "1.35.0", 0);
    assert_eq!(name(&[a.clone(), b.clone(), c]).as_deref(), Some("c"));
    let older = with(&candidate("z", "1.35.0", "1.36.0", 0), |candidate| {
        candidate.metadata.creation_timestamp =
            serde_json::from_value(json!("2025-01-01T00:00:00Z")).unwrap();
    });
    assert_eq!(name(&[a.clone(), older]).as_deref(), Some("z"));
    assert_eq!(name(&[candidate("x", "1.9", "1.36.0", 0), b]).as_deref(), Some("b"), "no version");
    assert_eq!(name(&[]), None);
}

#[test]
fn the_newest_program_says_the_strategy() {
    let asks = |candidate: &Arc<Candidate>, wanted: &str| {
        with(candidate, |candidate| candidate.spec.strategy = wanted.to_owned())
    };
    let (old, new) = (candidate("a", "1.35.0", "1.35.0", 0), candidate("b", "1.35.0", "1.36.0", 0));
    assert_eq!(strategy(&[asks(&old, "a.com/x"), new.clone()]), Ok(OLDEST));
    assert_eq!(strategy(&[old.clone(), asks(&new, "a.com/x")]), Ok("a.com/x"));
    let error = strategy(&[new.clone(), asks(&new, "a.com/x")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"candidates of the same binary version ask for the strategies "OldestEmulationVersion" and "a.com/x""#
    );
}

#[test]
fn an_election_is_needed_if_nobody_holds_or_somebody_better_waits_or_candidates_are_silent() {
    let held = |holder: &str, renewed: u64| LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        renew_time: Some(before(renewed)),
        lease_duration_seconds: Some(5),
    };
    let (a, b) = (candidate("a", "1.35.0", "1.36.0", 60), candidate("b", "1.36.0", "1.36.0", 60));
    let both = [a, b];
    let check = |lease: Option<LeaseSpec>, expected| {
        assert_eq!(is_open(lease.as_ref(), &both, NOW), Ok(expected), "{lease:?}");
    };
    check(None, true);
    check(Some(LeaseSpec::default()), true);
    check(Some(held("", 0)), true);
    check(Some(held("a", 0)), false);
    check(Some(held("a", 5)), false);
    check(Some(held("a", 6)), true);
    check(Some(held("b", 0)), true);
    let silent = [candidate("a", "1.35.0", "1.36.0", 901)];
    assert_eq!(is_open(Some(&held("a", 0)), &silent, NOW), Ok(true));
    let third = [with(&both[0], |candidate| candidate.spec.strategy = "a.com/x".to_owned())];
    assert_eq!(is_open(Some(&held("b", 0)), &third, NOW), Ok(false));
}

#[test]
fn a_holder_that_renews_stays_and_learns_who_is_preferred() {
    let lease = |holder: Option<&str>, renewed: u64| {
        json!({
            "holderIdentity": holder, "renewTime": before(renewed), "leaseDurationSeconds": 15,
            "acquireTime": before(100), "preferredHolder": "x", "leaseTransitions": 3,
        })
    };
    let spec = elected(lease(Some("b"), 0), OLDEST, Some("a"), NOW);
    assert_eq!((&spec["holderIdentity"], &spec["preferredHolder"]), (&json!("b"), &json!("a")));
    assert_eq!(spec["strategy"], OLDEST);
    for spec in [lease(Some("b"), 16), lease(Some(""), 0), lease(None, 0)] {
        let expected = json!({
            "holderIdentity": "a", "renewTime": before(0), "leaseDurationSeconds": 5,
            "leaseTransitions": 3, "strategy": OLDEST,
        });
        assert_eq!(elected(spec, OLDEST, Some("a"), NOW), expected);
    }
    // One that has expired, and is elected again, renews itself.
    let mut expired = lease(Some("a"), 16);
    expired["strategy"] = OLDEST.into();
    assert_eq!(elected(expired.clone(), OLDEST, Some("a"), NOW), expired);
    assert_eq!(elected(expired.clone(), OLDEST, None, NOW), expired);
}

#[test]
fn one_that_was_asked_owes_an_answer_until_it_renews() {
    let asked = |ago: u64, renewed: u64| {
        with(&candidate("a", "1.35.0", "1.36.0", renewed), |candidate| {
            candidate.spec.ping_time = Some(before(ago));
        })
    };
    assert!(!candidate("a", "1.35.0", "1.36.0", 60).owes_answer());
    assert!(asked(1, 60).owes_answer());
    assert!(!asked(1, 1).owes_answer());
    assert!(!asked(2, 1).owes_answer());
    assert!(asked(2, 1).is_awake(NOW) && !asked(6, 5).is_awake(NOW));
}

#[test]
fn one_that_never_renewed_is_deleted_by_its_age() {
    let renewed = candidate("a", "1.35.0", "1.36.0", 10);
    assert_eq!(renewed.removal(), Timestamp::from_secs(1_000_000 - 10) + CANDIDATE_AGE_MAX);
    let silent = with(&renewed, |candidate| candidate.spec.renew_time = None);
    let created = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
    assert_eq!(silent.removal(), created + CANDIDATE_AGE_MAX);
    assert!(silent.end() < NOW, "it does not count");
}
