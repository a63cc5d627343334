//! Tests of requests.

use super::*;

/// Requests that no row serves.
#[derive(Clone)]
struct NoRow;

impl Row for NoRow {
    fn group(&self) -> &str {
        ""
    }
    fn version(&self) -> &str {
        ""
    }
    fn resource(&self) -> &str {
        ""
    }
}

fn name_of(verb: Verb, selector: &str) -> String {
    let path = ResourcePath { resource: "configmaps".to_owned(), ..ResourcePath::default() };
    let request = Attributes::<NoRow> {
        field_selector: selector.to_owned(),
        ..Attributes::new(Identity::anonymous(), verb, Requested::Unrouted(path))
    };
    request.name().to_owned()
}

#[test]
fn what_is_kept_of_a_request_does_not_grow() {
    let named = |name: &str| {
        let path = ResourcePath { name: name.to_owned(), ..ResourcePath::default() };
        let identity = Identity::new("u", ["g"]);
        Attributes::<NoRow>::new(identity, Verb::Create, Requested::Unrouted(path))
    };
    let request = named("n");
    request.annotate("a", "b");
    request.keep_decoded();
    let kept = request.so_far(1);
    let n_bytes = kept.n_bytes();
    request.annotate("c", "d".repeat(1000));
    request.warn("w".repeat(1000));
    request.note_decoded(&Value::Null);
    assert_eq!((kept.n_bytes(), kept.decoded()), (n_bytes, None));
    assert_eq!(kept.audit_annotations(), BTreeMap::from([("a".to_owned(), "b".to_owned())]));
    assert!(request.n_bytes() > n_bytes + 2000);
    // Each text counts.
    let long = "x".repeat(1000);
    let impersonator = Impersonator { identity: Identity::new(&long, [&*long]), verb: Verb::Get };
    let extra = Arc::new(BTreeMap::from([(long.clone(), vec![long.clone()])]));
    let identity = Identity { uid: long.as_str().into(), extra, ..Identity::new(&long, []) };
    let of = |member: fn(&mut Attributes<NoRow>, String)| {
        let mut request = named("n");
        member(&mut request, long.clone());
        request
    };
    for (request, n) in [
        (named(&long), 1),
        (of(|request, text| request.user_agent = text), 1),
        (of(|request, text| request.label_selector = text), 1),
        (of(|request, text| request.field_selector = text), 1),
        (of(|request, text| request.audit_id = text), 1),
        (named("n").as_user(identity, impersonator), 6),
    ] {
        assert!(request.n_bytes() >= n * 1000, "{n}");
    }
}

/// Rights to one object may allow a list of it: no other selector may name it.
#[test]
fn list_that_requires_a_name_is_about_that_object() {
    for (selector, name) in [
        ("metadata.name=x", "x"),
        ("metadata.name==x", "x"),
        ("metadata.name=x,metadata.namespace=default", "x"),
        ("metadata.namespace=default,metadata.name=x", "x"),
        (",metadata.name=x,", "x"),
        // Matches nothing: the reference takes the first in the order of their text.
        ("metadata.name=y,metadata.name=x", "x"),
        ("metadata.name!=x", ""),
        ("metadata.name!=a,metadata.name=x", "x"),
        ("metadata.name=", ""),
        ("metadata.name=..", ""),
        ("metadata.name=a/b", ""),
        ("metadata.name=a%b", ""),
        (" metadata.name=x", ""),
        ("spec.metadata.name=x", ""),
        ("metadata.name=x,a", ""),
        (r"metadata.name=x,a=\z", ""),
        ("a=metadata.name", ""),
        ("", ""),
    ] {
        assert_eq!(name_of(Verb::List, selector), name, "{selector}");
        assert_eq!(name_of(Verb::Watch, selector), name, "{selector}");
    }
    assert_eq!(name_of(Verb::DeleteCollection, "metadata.name=x"), "");
}
