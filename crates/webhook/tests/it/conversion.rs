//! Versions of a kind, by hub and spokes (WHK-9).

use crate::review::{ask, tree};
use kube_core::{ObjectMeta, Resource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint_object::{GroupKind, GroupVersionKind};
use setpoint_webhook::conversion::ConversionError;
use setpoint_webhook::{KindConversion, Refusal, RegisterError, Spoke, Webhooks, path};
use std::borrow::Cow;

macro_rules! version {
    ($name:ident, $kind:literal, $group:literal, $version:literal, $($field:ident),*) => {
        #[derive(Debug, Clone, Serialize, Deserialize)]
        struct $name { metadata: ObjectMeta, $(#[serde(default)] $field: i64),* }
        impl Resource for $name {
            type DynamicType = ();
            type Scope = kube_core::NamespaceResourceScope;
            fn kind(_: &()) -> Cow<'_, str> { $kind.into() }
            fn group(_: &()) -> Cow<'_, str> { $group.into() }
            fn version(_: &()) -> Cow<'_, str> { $version.into() }
            fn plural(_: &()) -> Cow<'_, str> { "things".into() }
            fn meta(&self) -> &ObjectMeta { &self.metadata }
            fn meta_mut(&mut self) -> &mut ObjectMeta { &mut self.metadata }
        }
    };
}
version!(V1, "Thing", "example.com", "v1", both);
version!(V2, "Thing", "example.com", "v2", tens, ones);
version!(V3, "Thing", "example.com", "v3", negative);
version!(Other, "Other", "example.com", "v1", both);

impl Spoke<V2> for V1 {
    fn to_hub(self) -> Result<V2, Refusal> {
        match self.both {
            0..100 => {
                Ok(V2 { metadata: self.metadata, tens: self.both / 10, ones: self.both % 10 })
            }
            666 => panic!("not this one"),
            _ => Err(Refusal::denied("more than two digits")),
        }
    }
    fn from_hub(hub: V2) -> Result<Self, Refusal> {
        Ok(Self { metadata: hub.metadata, both: 10 * hub.tens + hub.ones })
    }
}

impl Spoke<V2> for V3 {
    fn to_hub(self) -> Result<V2, Refusal> {
        V1 { metadata: self.metadata, both: -self.negative }.to_hub()
    }
    fn from_hub(hub: V2) -> Result<Self, Refusal> {
        V1::from_hub(hub).map(|V1 { metadata, both }| Self { metadata, negative: -both })
    }
}

impl Spoke<V2> for Other {
    fn to_hub(self) -> Result<V2, Refusal> {
        Err(Refusal::denied("another kind"))
    }
    fn from_hub(hub: V2) -> Result<Self, Refusal> {
        Ok(Self { metadata: hub.metadata, both: 0 })
    }
}

pub(crate) fn thing() -> KindConversion {
    KindConversion::hub::<V2>().spoke::<V1>().spoke::<V3>().build().unwrap()
}

fn webhooks() -> Webhooks {
    Webhooks::builder().convert(thing()).build().unwrap()
}

/// A list of all objects of a kind is one review: beyond 7 MiB they could not be listed in another
/// version.
#[tokio::test]
async fn all_objects_of_a_large_kind_are_converted_at_once() {
    let mut large = object("v1", "both", 42);
    large["metadata"]["annotations"] = json!({"text": "x".repeat(100_000)});
    let objects = vec![large; 100];
    let body = review("example.com/v2", json!(objects)).to_string();
    assert!(body.len() > setpoint_webhook::BODY_BYTES_MAX);
    let webhooks = webhooks();
    let mut converting = std::pin::pin!(webhooks.handle(path::CONVERT, body));
    let mut n_turns = 0;
    let reply = std::future::poll_fn(|cx| {
        n_turns += 1;
        converting.as_mut().poll(cx)
    });
    let reply = reply.await;
    assert_eq!(reply.code, 200);
    let answer: Value = serde_json::from_slice(&reply.body).unwrap();
    let converted = answer["response"]["convertedObjects"].as_array().unwrap();
    assert_eq!(converted.len(), 100);
    assert!(converted.iter().all(|object| object["tens"] == 4 && object["ones"] == 2));
    assert!(n_turns >= 100, "other tasks have their turn: {n_turns}");
}

fn review(desired: &str, objects: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": desired, "objects": objects}, "response": {"uid": ""}})
}

fn object(version: &str, field: &str, value: i64) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing",
        "metadata": {"name": "a", "namespace": "n", "uid": "1", "labels": {"l": "x"}}, (field): value})
}

#[tokio::test]
async fn objects_go_through_the_hub_in_order_whk_9() {
    let webhooks = webhooks();
    let objects = json!([object("v3", "negative", -42), object("v2", "ones", 7)]);
    let response = ask(&webhooks, path::CONVERT, &review("example.com/v1", objects)).await;
    assert_eq!(response["result"], json!({"status": "Success"}));
    let wanted = json!([object("v1", "both", 42), object("v1", "both", 7)]);
    assert_eq!(response["convertedObjects"], wanted);
    // To the hub, and in the older review.
    let mut older = review("example.com/v2", json!([object("v1", "both", 58)]));
    older["apiVersion"] = "apiextensions.k8s.io/v1beta1".into();
    let response = ask(&webhooks, path::CONVERT, &older).await;
    let mut wanted = object("v2", "tens", 5);
    wanted["ones"] = 8.into();
    assert_eq!(response["convertedObjects"], json!([wanted]));
    let response = ask(&webhooks, path::CONVERT, &review("example.com/v2", json!([]))).await;
    assert_eq!(
        response,
        json!({"uid": "u", "convertedObjects": [], "result": {"status": "Success"}})
    );
}

#[tokio::test]
async fn one_object_that_fails_fails_the_review_whk_9() {
    let webhooks = webhooks();
    let good = object("v1", "both", 1);
    let other = json!({"apiVersion": "example.com/v1", "kind": "Sock", "metadata": {}});
    for (desired, bad, message) in [
        ("example.com/v2", object("v1", "both", 100), "object 1: more than two digits"),
        (
            "example.com/v2",
            object("v2", "ones", 1),
            "object 1: Thing.example.com is already in version example.com/v2",
        ),
        (
            "example.com/v2",
            object("v9", "ones", 1),
            "object 1: no conversion for version v9 of Thing.example.com",
        ),
        (
            "example.com/v9",
            object("v1", "both", 1),
            "object 0: no conversion for version v9 of Thing.example.com",
        ),
        ("example.com/v2", other, "object 1: no conversion is registered for Sock.example.com"),
        (
            "example.org/v2",
            object("v1", "both", 1),
            "object 0: Thing.example.com cannot be converted to another group: example.org/v2",
        ),
        ("", object("v1", "both", 1), r#"desiredAPIVersion "" is not a valid apiVersion"#),
        ("example.com/v2", object("v1", "both", 666), "internal error occurred during conversion"),
    ] {
        let response = ask(&webhooks, path::CONVERT, &review(desired, json!([good, bad]))).await;
        let wanted = json!({"uid": "u", "convertedObjects": [], "result": {"status": "Failure", "message": message}});
        assert_eq!(response, wanted);
    }
    let unfit = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": 7}});
    for bad in [unfit, json!(7), json!({})] {
        let response = ask(&webhooks, path::CONVERT, &review("example.com/v2", json!([bad]))).await;
        assert_eq!(response["result"]["status"], "Failure", "{bad}");
    }
    let reply = webhooks.handle(path::CONVERT, "{}").await;
    assert_eq!((reply.code, &tree(&reply)["message"]), (400, &"the review has no request".into()));
}

#[test]
fn versions_must_be_one_hub_and_spokes_whk_9() {
    let kind = || GroupKind { group: "example.com".into(), kind: "Thing".into() };
    let hub = KindConversion::hub::<V2>;
    assert_eq!(hub().build().unwrap_err(), ConversionError::OneVersion { kind: kind() });
    let twice = |version: &str| ConversionError::Twice { kind: kind(), version: version.into() };
    assert_eq!(hub().spoke::<V1>().spoke::<V1>().build().unwrap_err(), twice("v1"));
    let v2 = GroupVersionKind::new("example.com", "v2", "Thing");
    let same = hub().spoke_of(v2, Ok::<V2, Refusal>, Ok);
    assert_eq!(same.build().unwrap_err(), twice("v2"));
    let error = hub().spoke::<V1>().spoke::<Other>().build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "example.com/v1, Kind=Other is not a version of Thing.example.com"
    );
    let error = hub().spoke::<V1>().serving(["v2", "v3", "v4"]).build().unwrap_err();
    let partial = ConversionError::Partial {
        kind: kind(),
        missing: vec!["v3".into(), "v4".into()],
        unknown: vec!["v1".into()],
    };
    assert_eq!(error, partial);
    assert!(hub().spoke::<V1>().spoke::<V3>().serving(["v1", "v2", "v3"]).build().is_ok());
    let taken = Webhooks::builder().convert(thing()).convert(thing()).build();
    assert_eq!(taken.unwrap_err(), RegisterError::KindTaken { kind: kind() });
}

#[tokio::test]
async fn untyped_spoke_gets_its_type_and_may_not_change_the_identity() {
    let v4 = GroupVersionKind::new("example.com", "v4", "Thing");
    let to_hub = |object: Value| {
        let metadata = serde_json::from_value(object["metadata"].clone()).map_err(Refusal::from)?;
        Ok(V2 { metadata, tens: 0, ones: 4 })
    };
    let from_hub = |hub: V2| match hub.ones {
        9 => Ok(json!({"metadata": {"name": "b"}})),
        ones => Ok(json!({"metadata": hub.metadata, "four": ones})),
    };
    let kind = KindConversion::hub::<V2>().spoke_of(v4, to_hub, from_hub).build().unwrap();
    let webhooks = Webhooks::builder().convert(kind).build().unwrap();
    let ask = async |objects: Value| {
        ask(&webhooks, path::CONVERT, &review("example.com/v4", objects)).await
    };
    let response = ask(json!([object("v2", "ones", 3)])).await;
    assert_eq!(response["convertedObjects"], json!([object("v4", "four", 3)]));
    let response = ask(json!([object("v2", "ones", 9)])).await;
    let message =
        r#"object 0: the conversion of Thing.example.com changed metadata.name from "a" to "b""#;
    assert_eq!(response["result"]["message"], message);
}
