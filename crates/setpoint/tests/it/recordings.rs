//! A run that is recorded, and run again without a server.

use crate::plane::{map, maps, with_person};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::prelude::*;
use setpoint::runtime::recording::{Difference, Recording};
use std::sync::Arc;
use std::time::Duration;

/// The passes of a run: key, attempt, and the object's data as the pass saw it.
type Passes = Arc<Mutex<Vec<String>>>;

/// Copies a config map to a secret; fails at the first attempt over `b`.
fn copier(passes: &Passes, color: &'static str) -> Controller {
    let passes = passes.clone();
    let copy = move |request: Request, context: Context| {
        let passes = passes.clone();
        async move {
            let data =
                context.client().api::<ConfigMap>().get(&request)?.map(|map| map.data.clone());
            passes.lock().push(format!("{request} {} {data:?}", context.attempt()));
            if &*request.name == "b" && context.attempt() == 0 {
                return Err(BoxError::from("not yet"));
            }
            if data.is_some() && &*request.namespace == "default" {
                let secret = Apply::<Secret>::new(&request).set("/stringData/color", color).force();
                context.client().api::<Secret>().apply(&secret).await?;
            }
            Ok(Action::await_change())
        }
    };
    Controller::builder("copier").for_(Watch::<ConfigMap>::new()).build(copy).unwrap()
}

async fn record() -> (Vec<u8>, Vec<String>) {
    with_person(async |person| {
        let passes = Passes::default();
        let (builder, recorder) = Manager::builder(person.client.clone()).seed(1).record();
        let mut manager = builder.build();
        manager.add(copier(&passes, "red")).unwrap();
        let stop = CancellationToken::new();
        let acting = async {
            for (name, data) in [("a", "1"), ("b", "2"), ("c", "3")] {
                let map = json!({"metadata": {"name": name}, "data": {"k": data}});
                person.create(&maps("default", ""), &map).await;
                let secret = format!("/api/v1/namespaces/default/secrets/{name}");
                person.until(&secret, "it is there", Option::is_some).await;
            }
            person
                .request("DELETE", &maps("default", "a"), "application/json", &Value::Null)
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
            stop.cancel();
        };
        let mut file = Vec::new();
        let (ended, written, ()) =
            tokio::join!(manager.run(stop.clone()), recorder.run(&mut file), acting);
        ended.unwrap();
        written.unwrap();
        let passes = std::mem::take(&mut *passes.lock());
        (file, passes)
    })
    .await
}

async fn replay(file: &[u8], color: &'static str) -> (Vec<String>, Vec<Difference>) {
    let recording = Recording::read(file).await.unwrap();
    let replay = recording.replay();
    let passes = Passes::default();
    let mut manager = replay.manager().build();
    manager.add(copier(&passes, color)).unwrap();
    let stop = CancellationToken::new();
    let over = async {
        replay.over().await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(manager.run(stop.clone()), over);
    ended.unwrap();
    let passes = std::mem::take(&mut *passes.lock());
    (passes, replay.differences())
}

#[tokio::test(start_paused = true)]
async fn replay_runs_the_same_passes_and_sends_the_same_writes() {
    let (file, recorded) = record().await;
    let of_default = recorded.iter().filter(|pass| pass.starts_with("default/")).count();
    assert!(of_default >= 5, "{recorded:#?}");
    let (replayed, differences) = replay(&file, "red").await;
    assert_eq!(replayed, recorded);
    assert_eq!(differences, []);
}

#[tokio::test(start_paused = true)]
async fn replay_of_another_program_shows_what_it_does_otherwise() {
    let (file, recorded) = record().await;
    let (replayed, differences) = replay(&file, "blue").await;
    assert_eq!(replayed, recorded, "the recorded answers are given all the same");
    assert_eq!(differences.len(), 3, "{differences:#?}");
    for difference in &differences {
        let Difference::OtherBody { method, uri, recorded, sent } = difference else {
            panic!("{difference}")
        };
        assert_eq!(method, "PATCH");
        assert!(uri.contains("/namespaces/default/secrets/"), "{uri}");
        assert!(recorded.contains("red") && sent.contains("blue"), "{difference}");
    }
}

#[tokio::test(start_paused = true)]
async fn recording_that_was_cut_is_replayed_as_far_as_it_goes() {
    let (file, recorded) = record().await;
    assert!(Recording::read(&file[..]).await.unwrap().is_complete());
    for len in [file.len() / 4, file.len() / 2, file.len() - 10] {
        let cut = Recording::read(&file[..len]).await.unwrap();
        assert!(!cut.is_complete());
        let (replayed, _) = replay(&file[..len], "red").await;
        assert!(replayed.len() <= recorded.len(), "{replayed:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn damaged_recordings_are_refused() {
    let (file, _) = record().await;
    let text = String::from_utf8(file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let without_first = lines[1..].join("\n") + "\n";
    let without_third = [&lines[..2], &lines[3..]].concat().join("\n") + "\n";
    let twice = [&lines[..], &lines[lines.len() - 1..]].concat().join("\n") + "\n";
    for damaged in ["", "{}\n", &without_first, &without_third, &twice] {
        assert!(Recording::read(damaged.as_bytes()).await.is_err(), "{:.80}", damaged);
    }
}

#[tokio::test(start_paused = true)]
async fn recording_that_is_full_ends_and_the_manager_goes_on() {
    with_person(async |person| {
        let passes = Passes::default();
        let (builder, recorder) = Manager::builder(person.client.clone()).seed(1).record();
        let mut manager = builder.build();
        manager.add(copier(&passes, "red")).unwrap();
        let stop = CancellationToken::new();
        let acting = async {
            person.create(&maps("default", ""), &map("a", &[])).await;
            person
                .until("/api/v1/namespaces/default/secrets/a", "it is there", Option::is_some)
                .await;
            stop.cancel();
        };
        let mut file = Vec::new();
        let recording = recorder.bytes_max(1000).run(&mut file);
        let (ended, written, ()) = tokio::join!(manager.run(stop.clone()), recording, acting);
        ended.unwrap();
        written.unwrap();
        assert!(file.len() <= 1000 && file.ends_with(b"\n"), "{}", file.len());
        assert!(!Recording::read(&file[..]).await.unwrap().is_complete());
    })
    .await;
}
