//! A kind that an embedder compiles in, with its own defaults, validation and columns.

use crate::plane::{Person, with_person_of};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::kind::{CompiledKind, Fill, Kind, Selectable, StatusMeta, cell, not_supported, text};
use setpoint::object::field;

/// An order: its customer is immutable, and it has at least one piece.
static ORDER: Kind = Kind {
    default: |order, _version| {
        if let Some(spec) = order.object("spec") {
            spec.absent("pieces", 1);
        }
    },
    validate: |order, old, errors| {
        let (spec, path) = (&order["spec"], field::Path::new("spec"));
        if spec["pieces"].as_i64().is_some_and(|pieces| pieces < 1) {
            errors.push(field::Error::invalid(path.child("pieces"), &spec["pieces"], "at least 1"));
        }
        if old.is_some_and(|old| text(&old["spec"], "customer") != text(spec, "customer")) {
            errors.push(field::Error::forbidden(
                path.child("customer"),
                "an order keeps its customer",
            ));
        }
    },
    selectable: &[Selectable::new("spec.customer")],
    unknown_label: not_supported,
    cells: Some(|order, now| {
        let spec = &order["spec"];
        vec![cell::name(order), cell::text(spec, "customer").into(), cell::age(order, now)]
    }),
    ..Kind::with_status("shop.example.com", "Order", StatusMeta::Nothing, r#"{"phase":"New"}"#)
};
fn order() -> CompiledKind {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"customer": {"type": "string"}, "pieces": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}});
    let headings = [("Name", "string"), ("Customer", "string"), ("Age", "string")];
    CompiledKind::new(&ORDER, "v1", "orders", schema).short_names(["ord"]).headings(headings)
}

const ORDERS: &str = "/apis/shop.example.com/v1/namespaces/default/orders";

fn sent(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "shop.example.com/v1", "kind": "Order", "metadata": {"name": name}, "spec": spec})
}
async fn ask(person: &Person, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    person.request(method, path, kind, body).await.map_err(|error| match error {
        kube_client::Error::Api(status) => format!("{} {}", status.code, status.message),
        other => other.to_string(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_compiled_in_kind_is_served_as_any_other() {
    let plane = ControlPlane::builder().simulated(3).kind(order()).build();
    with_person_of(plane, async |person| {
        let new = sent("a", &json!({"customer": "ann", "odd": 1}));
        let made = ask(&person, "POST", ORDERS, &new).await.unwrap();
        assert_eq!(made["spec"], json!({"customer": "ann", "pieces": 1}), "defaulted and pruned");
        assert_eq!(made["status"], json!({"phase": "New"}));

        let few = ask(&person, "POST", ORDERS, &sent("b", &json!({"pieces": 0}))).await;
        let refusal = r#"422 Order.shop.example.com "b" is invalid: spec.pieces: Invalid value: 0: at least 1"#;
        assert_eq!(few, Err(refusal.to_owned()));
        let path = format!("{ORDERS}/a");
        let other = ask(&person, "PATCH", &path, &json!({"spec": {"customer": "bob"}})).await;
        let refusal = r#"422 Order.shop.example.com "a" is invalid: spec.customer: Forbidden: an order keeps its customer"#;
        assert_eq!(other, Err(refusal.to_owned()));
        let done = json!({"status": {"phase": "Sent"}, "spec": {"pieces": 9}});
        let done = ask(&person, "PATCH", &format!("{path}/status"), &done).await.unwrap();
        assert_eq!((&done["spec"]["pieces"], &done["status"]["phase"]), (&json!(1), &json!("Sent")));

        let of_ann = format!("{ORDERS}?fieldSelector=spec.customer%3Dann");
        let found = ask(&person, "GET", &of_ann, &Value::Null).await.unwrap();
        assert_eq!(found["kind"], "OrderList");
        assert_eq!(found["items"].as_array().unwrap().len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_compiled_in_kind_is_discovered_published_and_applied() {
    let plane = ControlPlane::builder().simulated(3).kind(order()).build();
    with_person_of(plane, async |person| {
        let group = ask(&person, "GET", "/apis/shop.example.com/v1", &Value::Null).await.unwrap();
        let names: Vec<_> =
            group["resources"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
        assert_eq!(names, ["orders", "orders/status"]);
        assert_eq!(group["resources"][0]["shortNames"], json!(["ord"]));

        let document = ask(&person, "GET", "/openapi/v3/apis/shop.example.com/v1", &Value::Null);
        let document = document.await.unwrap();
        let schema = &document["components"]["schemas"]["com.example.shop.v1.Order"];
        assert_eq!(schema["properties"]["spec"]["properties"]["pieces"]["type"], "integer");

        let applied = format!("{ORDERS}/a?fieldManager=shop");
        let config = sent("a", &json!({"customer": "ann", "pieces": 2}));
        let applied = person.request("PATCH", &applied, "application/apply-patch+yaml", &config);
        let applied = applied.await.unwrap();
        assert_eq!(applied["metadata"]["managedFields"][0]["manager"], "shop");

        let table = http::Request::get(ORDERS)
            .header(http::header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())
            .unwrap();
        let table: Value = person.client.request(table).await.unwrap();
        let headings: Vec<_> =
            table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
        assert_eq!(headings, ["Name", "Customer", "Age"]);
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(cells[..2], [json!("a"), json!("ann")]);
    })
    .await;
}
