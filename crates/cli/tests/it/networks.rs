//! The Network controller with back ends that fail, hang and refuse, and with crashes of the
//! controller.

use crate::plane::{Person, network, networks, with_person};
use futures::future::{BoxFuture, FutureExt, pending};
use kube_client::Client;
use network::backend::{Allocation, Backend, BackendError, Desired, Existing, Owner};
use serde_json::{Value, json};
use setpoint::object::time::{Clock, Timestamp};
use setpoint::runtime::{ControllerHandle, Manager};
use setpoint::testenv::wire::{Crash, Faults, Wire};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A scripted back end in memory.
#[derive(Default)]
struct Scripted(Mutex<Script>);

#[derive(Default)]
struct Script {
    held: BTreeMap<String, (String, Desired)>,
    /// The times of ensure and release calls.
    calls: Vec<Instant>,
    /// How many further calls fail.
    failing: usize,
    /// Calls for this owner never return.
    hanging: Option<String>,
}

impl Scripted {
    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().held.values().map(|(name, _)| name.clone()).collect()
    }

    fn n_calls(&self) -> usize {
        self.0.lock().unwrap().calls.len()
    }

    fn fail(&self, n: usize) {
        self.0.lock().unwrap().failing = n;
    }

    fn hang(&self, owner: Option<&str>) {
        self.0.lock().unwrap().hanging = owner.map(str::to_owned);
    }

    /// The times between calls.
    fn pauses(&self) -> Vec<Duration> {
        self.0.lock().unwrap().calls.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    async fn called<T>(
        &self,
        owner: &Owner,
        act: impl FnOnce(&mut Script) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let hangs = {
            let mut script = self.0.lock().unwrap();
            script.calls.push(Instant::now());
            script.hanging.as_ref() == Some(&owner.name)
        };
        if hangs {
            return pending().await;
        }
        let mut script = self.0.lock().unwrap();
        if script.failing > 0 {
            script.failing -= 1;
            return Err(BackendError::Registry {
                what: "write",
                path: "/registry".into(),
                source: std::io::Error::other("no space left"),
            });
        }
        act(&mut script)
    }
}

impl Backend for Scripted {
    fn ensure<'a>(
        &'a self,
        owner: &'a Owner,
        desired: Desired,
    ) -> BoxFuture<'a, Result<Allocation, BackendError>> {
        self.called(owner, move |script| {
            for (_, (holder, held)) in script.held.iter().filter(|(uid, _)| **uid != owner.uid) {
                if held.subnet.overlaps(&desired.subnet) {
                    return Err(BackendError::Overlap {
                        wanted: desired.subnet,
                        held: held.subnet,
                        holder: holder.clone(),
                    });
                }
            }
            script.held.insert(owner.uid.clone(), (owner.name.clone(), desired));
            Ok(Allocation { device: "scripted".into(), changed: true })
        })
        .boxed()
    }

    fn get<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Option<Existing>, BackendError>> {
        let script = self.0.lock().unwrap();
        let held = script.held.get(&owner.uid);
        let held =
            held.map(|(_, desired)| Existing { desired: *desired, device: "scripted".into() });
        async move { Ok(held) }.boxed()
    }

    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool, BackendError>> {
        self.called(owner, |script| Ok(script.held.remove(&owner.uid).is_some())).boxed()
    }
}

/// A running controller; dropping it kills it at its current await point.
struct Controller {
    handle: ControllerHandle,
    _life: JoinSet<()>,
}

/// A controller's connection on which it crashes.
fn crashing(person: &Person, crash: Crash) -> Wire {
    let (client, trace) = (person.client.clone(), crate::replay::trace());
    Wire::new(client, "controller", trace, Faults::default(), Some(crash))
}

fn start(client: Client, backend: &Arc<Scripted>) -> Controller {
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    let mut manager =
        Manager::builder(client).cache(network::controller::cache()).clock(clock).seed(1).build();
    let controller = network::controller::controller(backend.clone()).unwrap();
    let handle = manager.add(controller).unwrap();
    let mut life = JoinSet::new();
    life.spawn(async move { manager.run(CancellationToken::new()).await.unwrap() });
    Controller { handle, _life: life }
}

impl Person {
    async fn declare(&self, name: &str, cidr: &str, gateway: &str) {
        self.create(&networks("default", ""), &network(name, cidr, gateway)).await;
    }

    /// Declares a network, and waits until it is there.
    async fn made(&self, name: &str, cidr: &str, gateway: &str) {
        self.declare(name, cidr, gateway).await;
        self.judged(name, "True", "Synced").await;
    }

    /// Waits until the last network is gone, and has been freed.
    async fn freed(&self, backend: &Scripted, name: &str) {
        self.gone(&networks("default", name)).await;
        assert_eq!(backend.names(), [] as [&str; 0]);
    }

    /// Waits until the condition Ready has this status and reason; returns its message.
    async fn judged(&self, name: &str, status: &str, reason: &str) -> String {
        let ready = |network: &Option<Value>| {
            let ready = &network.as_ref()?["status"]["conditions"][0];
            (ready["status"] == status && ready["reason"] == reason).then(|| ready.clone())
        };
        let seen = self
            .until(&networks("default", name), reason, |network| ready(network).is_some())
            .await;
        ready(&seen).unwrap()["message"].as_str().unwrap().to_owned()
    }

    /// The events of a network: type, reason, message.
    async fn events(&self, name: &str) -> Vec<String> {
        quiet(1).await;
        let path =
            format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}");
        let events = self.get(&path).await.unwrap();
        let text = |event: &Value, member: &str| event[member].as_str().unwrap().to_owned();
        let line =
            |event| ["type", "reason", "message"].map(|member| text(event, member)).join(" ");
        events["items"].as_array().unwrap().iter().map(line).collect()
    }

    async fn is_deleting(&self, name: &str) -> bool {
        let network = self.get(&networks("default", name)).await.unwrap();
        network["metadata"]["deletionTimestamp"].is_string()
    }
}

/// Tells a story of networks and their back end.
async fn with_networks(story: impl AsyncFnOnce(Person, Arc<Scripted>)) {
    with_person(async |person| {
        person.define_networks().await;
        story(person, Arc::default()).await;
    })
    .await;
}

async fn quiet(secs: u64) {
    tokio::time::sleep(Duration::from_secs(secs)).await;
}

#[tokio::test(start_paused = true)]
async fn network_goes_though_its_controller_was_dead_when_it_was_deleted() {
    with_networks(async |person, backend| {
        let controller = start(person.client.clone(), &backend);
        person.made("a", "10.0.0.0/24", "10.0.0.1").await;
        drop(controller);
        person.delete(&networks("default", "a"), "Background").await;
        quiet(600).await;
        assert!(person.is_deleting("a").await);
        assert_eq!(backend.names(), ["default/a"]);
        let _controller = start(person.client.clone(), &backend);
        person.freed(&backend, "a").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn network_goes_though_its_controller_dies_while_it_frees_it() {
    with_networks(async |person, backend| {
        let controller = start(person.client.clone(), &backend);
        person.made("a", "10.0.0.0/24", "10.0.0.1").await;
        quiet(10).await;
        let before = backend.n_calls();
        backend.hang(Some("default/a"));
        person.delete(&networks("default", "a"), "Background").await;
        quiet(60).await;
        assert_eq!(backend.n_calls(), before + 1, "it is being freed");
        drop(controller);
        backend.hang(None);
        quiet(60).await;
        assert_eq!(backend.names(), ["default/a"]);
        let _controller = start(person.client.clone(), &backend);
        person.freed(&backend, "a").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn object_goes_though_its_controller_dies_between_freeing_and_letting_go() {
    // The writes: finalizer added, status, event, finalizer removed.
    for crash in [Crash::Before(4), Crash::After(4)] {
        with_networks(async |person, backend| {
            let wire = crashing(&person, crash);
            let controller = start(wire.client(), &backend);
            person.made("a", "10.0.0.0/24", "10.0.0.1").await;
            quiet(60).await;
            person.delete(&networks("default", "a"), "Background").await;
            wire.crashed().await;
            drop(controller);
            quiet(60).await;
            assert_eq!(backend.names(), [] as [&str; 0], "{crash:?}");
            let left = person.get(&networks("default", "a")).await.is_some();
            assert_eq!(left, crash == Crash::Before(4));
            let _controller = start(person.client.clone(), &backend);
            person.gone(&networks("default", "a")).await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_before_the_object_is_held() {
    // The first write adds the finalizer.
    for (crash, held) in [(Crash::Before(1), false), (Crash::After(1), true)] {
        with_networks(async |person, backend| {
            let wire = crashing(&person, crash);
            let controller = start(wire.client(), &backend);
            person.declare("a", "10.0.0.0/24", "10.0.0.1").await;
            wire.crashed().await;
            drop(controller);
            assert_eq!(backend.n_calls(), 0);
            person.delete(&networks("default", "a"), "Background").await;
            assert_eq!(person.get(&networks("default", "a")).await.is_some(), held, "{crash:?}");
            let _controller = start(person.client.clone(), &backend);
            person.freed(&backend, "a").await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn failing_back_end_is_told_of_once_and_asked_less_and_less_often() {
    with_networks(async |person, backend| {
        backend.fail(10);
        let controller = start(person.client.clone(), &backend);
        person.declare("a", "10.0.0.0/24", "10.0.0.1").await;
        person.judged("a", "False", "BackendFailed").await;
        person.judged("a", "True", "Synced").await;
        assert_eq!(backend.names(), ["default/a"]);
        assert_eq!(
            person.events("a").await,
            [
                "Warning BackendFailed write the address registry /registry: no space left",
                "Normal Synced 10.0.0.0/24 with gateway 10.0.0.1 is scripted",
            ]
        );
        assert_eq!(controller.handle.stats().error, 10);
        // The first passes overlap with the events of the controller's own writes, and so does the
        // last; in between, each pause is twice the previous one.
        let pauses = backend.pauses();
        let doubling = &pauses[2..10];
        assert!(doubling.windows(2).all(|pair| pair[1] == pair[0] * 2), "{pauses:?}");
        // A network that cannot be released keeps its object.
        backend.fail(5);
        person.delete(&networks("default", "a"), "Background").await;
        person.freed(&backend, "a").await;
        assert_eq!(controller.handle.stats().error, 15);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn taken_range_is_given_once_it_is_free() {
    with_networks(async |person, backend| {
        let _controller = start(person.client.clone(), &backend);
        person.made("first", "10.0.0.0/16", "10.0.0.1").await;
        person.declare("second", "10.0.1.0/24", "10.0.1.1").await;
        let message = person.judged("second", "False", "RangeTaken").await;
        assert_eq!(message, "10.0.1.0/24 overlaps 10.0.0.0/16, which default/first holds");
        quiet(600).await;
        assert_eq!(person.events("second").await, [format!("Warning RangeTaken {message}")]);
        assert!(backend.n_calls() < 30, "{} calls in ten minutes", backend.n_calls());
        person.delete(&networks("default", "first"), "Background").await;
        person.gone(&networks("default", "first")).await;
        // The back-off is at most 1000 s.
        for _ in 0..4 {
            quiet(300).await;
        }
        person.judged("second", "True", "Synced").await;
        assert_eq!(backend.names(), ["default/second"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn resync_of_unchanged_networks_does_nothing() {
    with_networks(async |person, backend| {
        let wire = Wire::clean(person.client.clone(), "controller", crate::replay::trace());
        let controller = start(wire.client(), &backend);
        for n in 0..20 {
            let (cidr, gateway) = (format!("10.0.{n}.0/24"), format!("10.0.{n}.1"));
            person.declare(&format!("n{n}"), &cidr, &gateway).await;
        }
        person.judged("n19", "True", "Synced").await;
        quiet(10).await;
        let count = || (backend.n_calls(), controller.handle.stats().total(), wire.n_writes());
        let before = count();
        quiet(3600).await;
        assert_eq!(count(), before, "calls, passes, writes");
        // And it still reacts.
        let edit = json!({"spec": {"cidr": "10.1.0.0/24", "gateway": "10.1.0.1"}});
        person.patch(&networks("default", "n7"), &edit).await;
        quiet(10).await;
        // One pass for the edit, and one for the resulting status write.
        assert!((1..=2).contains(&(backend.n_calls() - before.0)), "{}", backend.n_calls());
        let n7 = person.get(&networks("default", "n7")).await.unwrap();
        assert_eq!(n7["status"]["cidr"], "10.1.0.0/24");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn network_that_hangs_holds_up_one_worker_of_two() {
    with_networks(async |person, backend| {
        backend.hang(Some("default/stuck"));
        let _controller = start(person.client.clone(), &backend);
        person.declare("stuck", "10.0.0.0/24", "10.0.0.1").await;
        quiet(5).await;
        for n in 1..4 {
            let name = format!("n{n}");
            let (cidr, gateway) = (format!("10.0.{n}.0/24"), format!("10.0.{n}.1"));
            person.made(&name, &cidr, &gateway).await;
        }
    })
    .await;
}
