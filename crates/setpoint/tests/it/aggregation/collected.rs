//! Objects of an extension server that have owners, own others, or are in a namespace that is
//! deleted; and what is counted of the server.

use super::*;
use setpoint::runtime::metrics::Metrics;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// An object in the default namespace, with an owner.
fn owned(mut object: Value, owner: &Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }]);
    object
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

impl Stage {
    async fn delete(&self, path: &str) {
        let (code, text) = self.send("DELETE", path, &Value::Null).await;
        assert_eq!(code, 200, "{text}");
    }

    async fn gone(&self, path: &str) {
        until(path, async || get(&self.client, path).await.0, |code| *code == 404).await;
    }
}

#[tokio::test]
async fn dependents_on_either_side_are_collected_and_none_while_the_server_is_away() {
    let mut stage = Stage::new().await;
    stage.register().await;
    // Here the owner, there the dependent, which owns another one here.
    let owner = stage.create(MAPS, &map("owner")).await;
    let made = stage.create(THINGS, &owned(thing("between"), &owner)).await;
    stage.create(MAPS, &owned(map("last"), &made)).await;
    let kept = stage.create(THINGS, &thing("kept")).await;
    stage.create(MAPS, &owned(map("dependent"), &kept)).await;
    stage.delete(&format!("{MAPS}/owner")).await;
    stage.gone(&format!("{THINGS}/between")).await;
    stage.gone(&format!("{MAPS}/last")).await;

    // Away, and then not registered at all: nobody knows whether the owner is gone.
    stage.extension.stop_listening().await;
    stage.delete(&format!("{SERVICES}/v1.ext.example.com")).await;
    stage.gone(THINGS).await;
    // A change has the dependent processed.
    let touched = owned(map("dependent"), &kept);
    let path = format!("{MAPS}/dependent");
    assert_eq!(stage.send("PUT", &path, &touched).await.0, 200);
    // Two that are processed later, by when it has been.
    for n in 0..2 {
        let (owner, dependent) = (format!("owner-{n}"), format!("dependent-{n}"));
        let owner = stage.create(MAPS, &map(&owner)).await;
        stage.create(MAPS, &owned(map(&dependent), &owner)).await;
        stage.delete(&format!("{MAPS}/owner-{n}")).await;
        stage.gone(&format!("{MAPS}/{dependent}")).await;
    }
    assert_eq!(get(&stage.client, &path).await.0, 200);
    stage.served.stop().await;
}

#[tokio::test]
async fn an_owner_waits_in_the_foreground_for_a_dependent_elsewhere() {
    let stage = Stage::new().await;
    stage.register().await;
    let owner = stage.create(MAPS, &map("owner")).await;
    let mut dependent = owned(thing("dependent"), &owner);
    dependent["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = true.into();
    dependent["metadata"]["finalizers"] = json!(["ex.io/stay"]);
    stage.create(THINGS, &dependent).await;
    // The collector has seen it once it has collected one that was created later.
    let probe = stage.create(MAPS, &map("probe")).await;
    stage.create(THINGS, &owned(thing("probe"), &probe)).await;
    stage.delete(&format!("{MAPS}/probe")).await;
    stage.gone(&format!("{THINGS}/probe")).await;
    let options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"});
    let path = format!("{MAPS}/owner");
    assert_eq!(stage.send("DELETE", &path, &options).await.0, 200);
    let look = async || get_json(&stage.client, &format!("{THINGS}/dependent"), JSON).await;
    until("it is deleted", look, |found| found["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(get(&stage.client, &path).await.0, 200);
    let patch = Request::patch(format!("{THINGS}/dependent"))
        .header("content-type", "application/merge-patch+json")
        .body(json!({"metadata": {"finalizers": null}}).to_string().into_bytes().into());
    assert_eq!(stage.client.send(patch.unwrap()).await.unwrap().status(), 200);
    stage.gone(&format!("{THINGS}/dependent")).await;
    stage.gone(&path).await;
    stage.served.stop().await;
}

#[tokio::test]
async fn a_namespace_takes_its_objects_elsewhere_with_it() {
    let stage = Stage::new().await;
    stage.register().await;
    let path = "/api/v1/namespaces/shop";
    stage.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
    let things = THINGS.replace("default", "shop");
    let mut stays = thing("stays");
    stays["metadata"]["finalizers"] = json!(["ex.io/stay"]);
    stage.create(&things, &stays).await;
    stage.create(&things, &thing("goes")).await;
    stage.create(THINGS, &thing("other")).await;
    stage.delete(path).await;
    stage.gone(&format!("{things}/goes")).await;
    let look = async || {
        let namespace = get_json(&stage.client, path, JSON).await;
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let wanted = |condition: &Value| condition["type"] == "NamespaceContentRemaining";
        conditions.into_iter().find(wanted).unwrap_or_default()
    };
    let message = "Some resources are remaining: things.ext.example.com has 1 resource instances";
    until("it says what remains", look, |found| found["message"] == message).await;
    let patch = Request::patch(format!("{things}/stays"))
        .header("content-type", "application/merge-patch+json")
        .body(json!({"metadata": {"finalizers": null}}).to_string().into_bytes().into());
    assert_eq!(stage.client.send(patch.unwrap()).await.unwrap().status(), 200);
    stage.gone(path).await;
    assert_eq!(get(&stage.client, &format!("{THINGS}/other")).await.0, 200);
    stage.served.stop().await;
}

#[tokio::test]
async fn losses_of_a_server_are_counted() {
    let metrics = Metrics::new();
    let stage = Stage::of(|plane| plane.serve_metrics(&metrics)).await;
    stage.register().await;
    let has = async |line: &str| {
        let wanted = line.to_owned();
        until(line, async || metrics.prometheus(), |text| text.contains(&wanted)).await;
    };
    has(r#"aggregator_unavailable_apiservice{name="v1.ext.example.com"} 0"#).await;
    has(r#"aggregator_unavailable_apiservice{name="v1.apps"} 0"#).await;
    stage.delete("/api/v1/namespaces/ext/services/api").await;
    has(r#"aggregator_unavailable_apiservice{name="v1.ext.example.com"} 1"#).await;
    has(r#"aggregator_unavailable_apiservice_total{name="v1.ext.example.com",reason="ServiceNotFound"} 1"#).await;
    stage.served.stop().await;
}
