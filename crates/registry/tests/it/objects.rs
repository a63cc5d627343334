//! Every object and every change of one, for readers in this process.
use crate::server::Server;
use serde_json::{Value, json};
use setpoint_registry::{
    ListOptions, MAILBOX_CHANGES_MAX, ObjectChange, ObjectChanges, Owners, Verb,
};
use setpoint_store::{Op, Store as _, Txn};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, owners: &[&Value]) -> Value {
    let owners: Vec<_> = owners
        .iter()
        .map(|owner| {
            json!({"apiVersion": "v1", "kind": "ConfigMap",
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]})
        })
        .collect();
    json!({"metadata": {"name": name, "namespace": "default", "ownerReferences": owners}})
}
/// The next change of a ConfigMap or a Secret, as `+name`; what is no object is told too.
async fn next(changes: &mut ObjectChanges, owners: &mut Owners) -> String {
    loop {
        let Some(change) = changes.next().await else { return "stopped".to_owned() };
        owners.apply(&change);
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
async fn words(changes: &mut ObjectChanges, owners: &mut Owners, n: usize) -> String {
    let mut words = Vec::new();
    for _ in 0..n {
        words.push(next(changes, owners).await);
    }
    words.join(" ")
}
fn names(owners: &Owners, owner: &Value) -> Vec<String> {
    let keys = owners.dependents(owner["metadata"]["uid"].as_str().unwrap());
    keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn one_reader_is_told_of_everything_and_knows_who_depends_on_whom() {
    let server = Server::start().await;
    let owner = server.create(MAPS, map("owner", &[])).await.unwrap();
    server.create(MAPS, map("first", &[&owner])).await.unwrap();
    // A list of the newest waits until the cache has it.
    let request = server.request(Verb::List, MAPS);
    server.registry.list(&request, &ListOptions::default()).await.unwrap();
    let (mut changes, mut owners) = (server.registry.object_changes(), Owners::default());
    assert_eq!(words(&mut changes, &mut owners, 4).await, "resync +first +owner synced");
    assert_eq!(names(&owners, &owner), ["/registry/configmaps/default/first"]);
    // Of several resources, in the order in which it happened.
    let secrets = "/api/v1/namespaces/default/secrets";
    server.create(secrets, map("second", &[&owner])).await.unwrap();
    server
        .patch(&format!("{MAPS}/first"), json!({"metadata": {"ownerReferences": null}}))
        .await
        .unwrap();
    server.delete(&format!("{MAPS}/owner")).await.unwrap();
    assert_eq!(words(&mut changes, &mut owners, 3).await, "+second +first -owner");
    assert_eq!(names(&owners, &owner), ["/registry/secrets/default/second"]);
    server.delete(&format!("{secrets}/second")).await.unwrap();
    assert_eq!(next(&mut changes, &mut owners).await, "-second");
    assert!(names(&owners, &owner).is_empty());
    server.stop().await;
    assert_eq!(next(&mut changes, &mut owners).await, "stopped");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_behind_starts_over() {
    let server = Server::start().await;
    let (mut changes, mut owners) = (server.registry.object_changes(), Owners::default());
    assert_eq!(words(&mut changes, &mut owners, 2).await, "resync synced");
    server.create(MAPS, map("kept", &[])).await.unwrap();
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
    assert_eq!(words(&mut changes, &mut owners, 3).await, "resync +kept synced");
    server.stop().await;
}
