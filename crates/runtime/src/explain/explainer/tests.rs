use std::time::Duration;

use expect_test::expect;
use setpoint_object::time::Timestamp;

use super::*;
use crate::{
    client::{ReadFrom, WriteOutcome},
    explain::{Cause, Writer},
    pass::{CacheId, Place, ReconcileId},
    request::Request,
};

fn began(cause: Cause) -> Began {
    Began { reconcile_id: ReconcileId(1), ..Began::now(cause) }
}

fn place(resource: &Arc<str>) -> Place<'_> {
    Place { cache: CacheId::OWN, resource, cluster: None }
}

/// An explainer of a controller with one watch, whose cache still has one object's version.
fn explainer(passes_max: usize) -> Explainer<Request> {
    let explainer = Explainer::new("network".into(), passes_max);
    let seen = |versions: &BTreeSet<u64>| {
        let writer =
            Writer { manager: "kubectl".into(), operation: "Apply".into(), ..Writer::default() };
        let seen = Seen { object: Request::new("default", "pod"), writers: vec![writer] };
        versions.iter().filter(|version| **version == 7).map(|_| (7, seen.clone())).collect()
    };
    let find_source = move |number| {
        let find_seen = Box::new(seen);
        (number == 0).then(|| WatchedSource { resource: "pods".into(), find_seen })
    };
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    explainer.run(clock, Box::new(find_source));
    explainer
}

#[tokio::test(start_paused = true)]
async fn explanation_of_a_pass_is_a_few_sentences() {
    let explainer = explainer(8);
    let key = Request::new("default", "a");
    let first = explainer.begin(
        key.clone(),
        Began {
            n_events: 3,
            waited: Some(Duration::from_millis(12)),
            priority: -100,
            ..began(Cause::Updated { source: 0, resource_version: 7 })
        },
        false,
    );
    first.pass().pass().note_read(place(&"pods".into()), &key, ReadFrom::Cache);
    tokio::time::advance(Duration::from_millis(5)).await;
    first.pass().pass().note_written(
        place(&"pods".into()),
        &key,
        "update",
        Some(("8", &bytes::Bytes::new())),
        WriteOutcome::Done,
    );
    first.end(Instant::now(), PassOutcome::Error("no such thing: at all".into()));
    let second = explainer.begin(key.clone(), Began { attempt: 1, ..began(Cause::Retry) }, false);
    let other = Request::new("default", "b");
    drop(explainer.begin(other, began(Cause::Deleted { source: 0, resource_version: 6 }), false));

    let explanations: Vec<_> = explainer.of_key(&key).iter().map(ToString::to_string).collect();
    expect![[r#"
        network default/a, pass 00000000-0000-4000-8000-000000000001 at 2026-01-01T00:00:00.005000Z
          because the previous pass asked for a retry
          attempt 2
          still running
        network default/a, pass 00000000-0000-4000-8000-000000000001 at 2026-01-01T00:00:00.000000Z
          because pods default/pod was updated at version 7, written by kubectl (Apply); 3 additions became this pass
          attempt 1 after 12ms in the queue at priority -100
          read pods default/a from the cache
          update pods default/a: now 8
          failed: no such thing: at all; it took 5ms
    "#]]
    .assert_eq(&(explanations.join("\n") + "\n"));
    second.end(Instant::now(), PassOutcome::Success);
    expect![[r#"
        network default/b, pass 00000000-0000-4000-8000-000000000001 at 2026-01-01T00:00:00.005000Z
          because one of pods was deleted at version 6
          attempt 1
          dropped before it had ended; it took 0ns"#]]
    .assert_eq(&explainer.of_text("default/b")[0].to_string());
    assert_eq!(explainer.all().len(), 3);
    assert_eq!(explainer.all()[1].outcome, Some(PassOutcome::Success));
    assert!(explainer.of_key(&"a key of another type").is_empty());
}

#[test]
fn disabled_explainer_records_only_writes() {
    let explainer = explainer(0);
    let recording = explainer.begin(Request::cluster("a"), began(Cause::Timer), false);
    let keyed = recording.pass();
    let pass = keyed.pass();
    let key = Request::cluster("n");
    pass.note_written(
        place(&"nodes".into()),
        &key,
        "update",
        Some(("8", &bytes::Bytes::new())),
        WriteOutcome::Done,
    );
    let written = recording.end(Instant::now(), PassOutcome::Success);
    assert!(explainer.all().is_empty() && pass.recorded().2.is_none());
    assert!(written.0.into_values().map(|writes| writes.newest).eq([8]));
}
