//! Every object and every change, for readers in this process.
use crate::server::Server;
use futures::FutureExt as _;
use serde_json::{Value, json};
use setpoint_registry::{
    ChangeSignal, ListOptions, MAILBOX_CHANGES_MAX, ObjectChange, ObjectChanges, Verb,
};
use setpoint_store::{Op, Store as _, Txn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}})
}
/// The next change of a ConfigMap or a Secret, as `+name`, or a change without an object.
async fn next(changes: &mut ObjectChanges) -> String {
    loop {
        let Some(change) = changes.next().await else { return "stopped".to_owned() };
        let (sign, object) = match &change {
            ObjectChange::Resync => return "resync".to_owned(),
            ObjectChange::Synced(_) => return "synced".to_owned(),
            ObjectChange::Put(object) => ("+", object),
            ObjectChange::Deleted(object) => ("-", object),
            other => panic!("{other:?}"),
        };
        if matches!(object.prefix(), "/registry/configmaps/" | "/registry/secrets/") {
            return format!("{sign}{}", object.skim().unwrap().name);
        }
    }
}
/// Whether a task was woken.
#[derive(Default)]
struct Woken(AtomicBool);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}
async fn words(changes: &mut ObjectChanges, n: usize) -> String {
    let mut words = Vec::new();
    for _ in 0..n {
        words.push(next(changes).await);
    }
    words.join(" ")
}
#[tokio::test(start_paused = true)]
async fn a_reader_gets_every_change_in_order() {
    let server = Server::start().await;
    server.create(MAPS, map("third")).await.unwrap();
    server.create(MAPS, map("first")).await.unwrap();
    // A list of the newest waits until the cache has it.
    let request = server.request(Verb::List, MAPS);
    server.registry.list(&request, &ListOptions::default()).await.unwrap();
    let mut changes = server.registry.object_changes();
    assert_eq!(words(&mut changes, 4).await, "resync +first +third synced");
    // Of several resources, in the order of revisions.
    let secrets = "/api/v1/namespaces/default/secrets";
    server.create(secrets, map("second")).await.unwrap();
    server
        .patch(&format!("{MAPS}/first"), json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .unwrap();
    server.delete(&format!("{MAPS}/third")).await.unwrap();
    assert_eq!(words(&mut changes, 3).await, "+second +first -third");
    server.delete(&format!("{secrets}/second")).await.unwrap();
    assert_eq!(next(&mut changes).await, "-second");
    server.stop().await;
    assert_eq!(next(&mut changes).await, "stopped");
}

#[tokio::test(start_paused = true)]
async fn a_reader_gets_the_changes_that_it_wants_and_others_do_not_wake_it() {
    let server = Server::start().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let is_secret = |key: &[u8], _: &[u8]| key.starts_with(b"/registry/secrets/");
    let mut changes = server.registry.object_changes_where(is_secret);
    assert_eq!(words(&mut changes, 2).await, "resync synced");
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(woken.clone());
    let mut waiting = Box::pin(changes.next());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    server.create(MAPS, map("other")).await.unwrap();
    let request = server.request(Verb::List, MAPS);
    server.registry.list(&request, &ListOptions::default()).await.unwrap();
    assert!(!woken.0.load(Relaxed));
    drop(waiting);
    server.create(secrets, map("wanted")).await.unwrap();
    server.delete(&format!("{MAPS}/other")).await.unwrap();
    server.delete(&format!("{secrets}/wanted")).await.unwrap();
    assert_eq!(words(&mut changes, 2).await, "+wanted -wanted");
    server.stop().await;
    assert_eq!(next(&mut changes).await, "stopped");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_behind_resyncs() {
    let server = Server::start().await;
    let mut changes = server.registry.object_changes();
    assert_eq!(words(&mut changes, 2).await, "resync synced");
    server.create(MAPS, map("kept")).await.unwrap();
    for n in 0..=MAILBOX_CHANGES_MAX / 1000 {
        let op = |i: usize| {
            let key = format!("/registry/configmaps/default/{n}-{i}");
            if n % 2 == 0 {
                Op::Put(key.into(), "{}".into())
            } else {
                Op::Delete(key.replace(&format!("/{n}-"), &format!("/{}-", n - 1)).into())
            }
        };
        let ops = (0..1000).map(op).collect();
        server.store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    }
    for i in 0..1000 {
        let n = MAILBOX_CHANGES_MAX / 1000;
        let key = format!("/registry/configmaps/default/{n}-{i}");
        server
            .store
            .commit(Txn { ops: vec![Op::Delete(key.into())], ..Txn::default() })
            .await
            .unwrap();
    }
    let request = server.request(Verb::List, MAPS);
    server.registry.list(&request, &ListOptions::default()).await.unwrap();
    assert_eq!(words(&mut changes, 3).await, "resync +kept synced");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_signal_says_that_objects_of_a_resource_or_a_name_have_changed() {
    let server = Server::start().await;
    let prefix = "/registry/configmaps/";
    let mut all = server.registry.change_signal(prefix, None);
    let mut named = server.registry.change_signal(prefix, Some("wanted"));
    let said = |signal: &mut ChangeSignal| signal.changed().now_or_never().is_some();
    let synced = async |what: &str| {
        // A list of the newest waits until the cache has every change.
        let request = server.request(Verb::List, MAPS);
        server.registry.list(&request, &ListOptions::default()).await.expect(what);
    };
    assert!(!said(&mut all) && !said(&mut named));
    server.create(MAPS, map("other")).await.unwrap();
    server.create("/api/v1/namespaces/default/secrets", map("wanted")).await.unwrap();
    synced("after the first creates").await;
    assert!(said(&mut all) && !said(&mut named));
    server.create(MAPS, map("wanted")).await.unwrap();
    server.delete(&format!("{MAPS}/wanted")).await.unwrap();
    synced("after the delete").await;
    assert!(said(&mut all) && said(&mut named));
    assert!(!said(&mut all) && !said(&mut named), "once for several changes");
    server.stop().await;
    assert!(!said(&mut all) && !said(&mut named), "no change follows");
}
