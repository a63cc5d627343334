use super::*;
use SchemaLanguage::{GoTypes, OpenApi};

/// Without CBOR.
const USUAL: Types = Types { cbor: false };
const ITEM: Endpoint = Endpoint::Builtin { collection: false, tables: true };

#[track_caller]
fn check(accept: &str, endpoint: Endpoint, encoding: Encoding, transform: Transform) {
    let accepted = negotiate(accept, endpoint, USUAL).unwrap();
    assert_eq!((accepted.encoding, accepted.transform), (encoding, transform), "{accept}");
}

#[track_caller]
fn refused(accept: &str, endpoint: Endpoint, message: &str) {
    let error = negotiate(accept, endpoint, USUAL).unwrap_err();
    assert_eq!((error.code(), error.0.message.as_str()), (406, message), "{accept}");
}

#[test]
fn clauses_are_tried_in_order_of_quality() {
    let none = Transform::None;
    check("", ITEM, Encoding::Json, none);
    check("*/*", ITEM, Encoding::Json, none);
    check("application/yaml", ITEM, Encoding::Yaml, none);
    check("application/json;q=0.5, application/yaml", ITEM, Encoding::Yaml, none);
    check("*/*, application/yaml", ITEM, Encoding::Yaml, none);
    check("application/vnd.kubernetes.protobuf,application/json", ITEM, Encoding::Protobuf, none);
    check("application/json;unknown=1", ITEM, Encoding::Json, none);
    check("application/*", Endpoint::Custom, Encoding::Json, none);
}

#[test]
fn transforms_need_all_three_parameters() {
    let table = Transform::Table(MetaVersion::V1);
    check(
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        ITEM,
        Encoding::Json,
        table,
    );
    check(
        "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
        ITEM,
        Encoding::Json,
        Transform::Table(MetaVersion::V1Beta1),
    );
    check(
        "application/json;as=Foo;v=v1;g=meta.k8s.io,application/json",
        ITEM,
        Encoding::Json,
        Transform::None,
    );
    let text = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    refused("application/json;v=v1", ITEM, text);
    refused("application/json;as=Table;v=v2;g=meta.k8s.io", ITEM, text);
    refused("application/vnd.kubernetes.protobuf", Endpoint::Custom, text);
    refused("application/json;as=Table;v=v1;g=meta.k8s.io", Endpoint::Plain, text);
}

#[test]
fn an_unacceptable_form_is_refused_with_the_list_of_forms() {
    refused(
        "text/html",
        ITEM,
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf",
    );
    refused(
        "application/*",
        Endpoint::Builtin { collection: true, tables: true },
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
    );
    for language in [OpenApi, GoTypes] {
        let watch = Endpoint::Watch(language);
        let accepted = negotiate("application/yaml, application/json", watch, USUAL).unwrap();
        assert_eq!(
            stream(accepted, USUAL).unwrap_err().0.message,
            "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        );
        let text = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        refused("application/json;as=Foo;v=v1;g=meta.k8s.io", watch, text);
    }
    refused(
        "application/cbor",
        Endpoint::Watch(GoTypes),
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
    );
    refused(
        "application/*",
        Endpoint::Discovery,
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf",
    );
}

#[test]
fn parameters_choose_streams_and_versions() {
    let none = Transform::None;
    for accept in ["application/json;stream=watch", "application/json;sv=v1"] {
        check(accept, ITEM, Encoding::Json, none);
    }
    let text = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    for accept in
        ["application/json;stream=x", "application/yaml;stream=watch", "application/json;sv=v2"]
    {
        refused(accept, ITEM, text);
    }
    refused("application/json;sv=v1", Endpoint::Plain, text);
    // Those that a wildcard means are tried in turn.
    check("*/*;stream=watch", ITEM, Encoding::Json, none);
    // A mistake in one clause is none in another, and parameters may have no value.
    check("application/json;as=;v=;g=", ITEM, Encoding::Json, none);
    check("a;;,application / yaml, application/json", ITEM, Encoding::Yaml, none);
}

#[test]
fn logs_are_text_for_their_route_alone() {
    let accepted = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let route = "406: Not Acceptable\n\nAvailable representations: text/plain, application/json, application/yaml, application/vnd.kubernetes.protobuf";
    for (accept, text) in [
        ("text/plain", accepted),
        ("text/plain, application/cbor", accepted),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", accepted),
        ("text/*", route),
        ("text/html", route),
        ("application/cbor", route),
    ] {
        refused(accept, Endpoint::Log, text);
    }
    check("text/plain;q=0.5, application/json", Endpoint::Log, Encoding::Json, Transform::None);
    check("*/*", Endpoint::Log, Encoding::Json, Transform::None);
}

#[test]
fn documents_in_json_alone_are_refused_in_other_forms() {
    for accept in ["", "*/*", "application/json", "application/json;as=Foo", "text/html,*/*;q=0.1"]
    {
        json_alone(accept).unwrap();
    }
    for accept in ["application/yaml", "application/*", "text/html"] {
        let error = json_alone(accept).unwrap_err();
        let text = "406: Not Acceptable\n\nAvailable representations: application/json";
        assert_eq!((error.code(), &*error.0.message), (406, text));
    }
}

#[test]
fn protobuf_is_for_built_in_kinds_and_metadata() {
    let both = "application/vnd.kubernetes.protobuf,application/json";
    let watch = Endpoint::Watch;
    let discovery = [Endpoint::Plain, Endpoint::Versions, Endpoint::Discovery];
    for endpoint in [ITEM, Endpoint::Status, watch(GoTypes)].into_iter().chain(discovery) {
        check(both, endpoint, Encoding::Protobuf, Transform::None);
    }
    for endpoint in [Endpoint::Custom, watch(OpenApi)] {
        check(both, endpoint, Encoding::Json, Transform::None);
    }
    let metadata = |kind: &str| {
        let params = format!("as={kind};g=meta.k8s.io;v=v1");
        format!("application/vnd.kubernetes.protobuf;{params},application/json;{params}")
    };
    let (one, list) =
        (Transform::Partial(MetaVersion::V1), Transform::PartialList(MetaVersion::V1));
    for endpoint in [ITEM, Endpoint::Custom, watch(OpenApi)] {
        check(&metadata("PartialObjectMetadata"), endpoint, Encoding::Protobuf, one);
        check(&metadata("PartialObjectMetadataList"), endpoint, Encoding::Protobuf, list);
        let table = Transform::Table(MetaVersion::V1);
        check(&metadata("Table"), endpoint, Encoding::Json, table);
    }
}

fn headers(content_type: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !content_type.is_empty() {
        headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
    }
    headers
}

#[test]
fn body_encoding_is_the_media_type_before_the_semicolon() {
    assert_eq!(body_format(&headers(""), GoTypes, USUAL).unwrap(), Format::Json);
    assert_eq!(
        body_format(&headers("Application/JSON; charset=x"), GoTypes, USUAL).unwrap(),
        Format::Json
    );
    for malformed in
        ["application/json; charset", "application/json; a=b; a=c", "application/json,"]
    {
        body_format(&headers(malformed), GoTypes, USUAL).unwrap_err();
    }
    assert_eq!(body_format(&headers("application/yaml"), OpenApi, USUAL).unwrap(), Format::Yaml);
    let protobuf = headers("application/vnd.kubernetes.protobuf");
    assert_eq!(body_format(&protobuf, GoTypes, USUAL).unwrap(), Format::Protobuf);
    let error = body_format(&protobuf, OpenApi, USUAL).unwrap_err();
    // Named for the metadata of custom resources.
    assert!(error.0.message.ends_with("application/vnd.kubernetes.protobuf"));
    let error = body_format(&headers("text/plain"), GoTypes, USUAL).unwrap_err();
    assert_eq!(error.code(), 415);
    assert_eq!(
        error.0.message,
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
    );
}

#[test]
fn bodies_may_be_in_cbor_and_of_patches_only_an_apply() {
    let types = Types { cbor: true };
    let cbor = headers("application/cbor");
    assert_eq!(body_format(&cbor, GoTypes, types).unwrap(), Format::Cbor);
    assert_eq!(body_format(&cbor, OpenApi, types).unwrap(), Format::Cbor);
    let error = body_format(&headers("application/cbor-seq"), OpenApi, types).unwrap_err();
    assert!(error.0.message.ends_with("application/vnd.kubernetes.protobuf, application/cbor"));
    let apply = headers("application/apply-patch+cbor");
    assert_eq!(patch_format(&apply, OpenApi, types).unwrap(), (PatchType::Apply, Format::Cbor));
    let merge = headers("application/merge-patch+cbor");
    let error = patch_format(&merge, GoTypes, types).unwrap_err();
    assert_eq!(error.0.message, "415: Unsupported Media Type");
    let error = patch_format(&merge, OpenApi, types).unwrap_err();
    assert!(
        error.0.message.ends_with("application/apply-patch+yaml, application/apply-patch+cbor")
    );
    assert!(patch_format(&apply, GoTypes, USUAL).is_err());
    assert!(body_format(&cbor, GoTypes, USUAL).is_err());
}

#[test]
fn strategic_merge_is_refused_for_custom_resources_only() {
    let strategic = headers("application/strategic-merge-patch+json");
    assert_eq!(patch_format(&strategic, GoTypes, USUAL).unwrap().0, PatchType::StrategicMerge);
    let error = patch_format(&strategic, OpenApi, USUAL).unwrap_err();
    assert_eq!(error.reason(), Reason::UnsupportedMediaType);
    patch_format(&headers("Application/Merge-Patch+JSON"), GoTypes, USUAL).unwrap_err();
    assert_eq!(body_format(&headers("Application/JSON"), GoTypes, USUAL).unwrap(), Format::Json);
    // A route reads a list, and the handler behind it one type.
    for list in ["application/json-patch+json ;a", "a, application/json-patch+json"] {
        let message = patch_format(&headers(list), GoTypes, USUAL).unwrap_err().0.message;
        let text = "accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";
        assert!(message.ends_with(text), "{message}");
    }
    let error = patch_format(&headers(""), GoTypes, USUAL).unwrap_err();
    assert_eq!(error.0.message, "415: Unsupported Media Type");
    assert_eq!(error.0.details, Some(Details::default()));
}

#[test]
fn cbor_has_everything_but_tables_and_most_of_discovery() {
    let types = Types { cbor: true };
    let accepted = |accept: &str, endpoint| negotiate(accept, endpoint, types);
    let encoding = |accept: &str, endpoint| accepted(accept, endpoint).unwrap().encoding;
    let watches = [Endpoint::Watch(GoTypes), Endpoint::Watch(OpenApi)];
    let others = [ITEM, Endpoint::Custom, Endpoint::Status, Endpoint::Log, Endpoint::Discovery];
    for endpoint in watches.into_iter().chain(others) {
        assert_eq!(
            encoding("application/json;q=0.9,application/cbor;q=1", endpoint),
            Encoding::Cbor
        );
    }
    assert_eq!(encoding("application/cbor;stream=watch", watches[0]), Encoding::Cbor);
    let transformed = |kind: &str| format!("application/cbor;as={kind};g=meta.k8s.io;v=v1");
    let partial = accepted(&transformed("PartialObjectMetadata"), ITEM).unwrap();
    assert_eq!(partial.transform, Transform::Partial(MetaVersion::V1));
    let only = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let refused = |accept: &str, endpoint| accepted(accept, endpoint).unwrap_err().0.message;
    for endpoint in [ITEM, Endpoint::Custom, watches[0], watches[1]] {
        let text = format!("{only}, application/cbor");
        assert_eq!(refused(&transformed("Table"), endpoint), text);
    }
    assert_eq!(refused("application/cbor", Endpoint::Plain), only);
    assert_eq!(
        refused("application/cbor", Endpoint::Versions),
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"
    );
    // A sequence is an answer, not something to accept.
    assert_eq!(refused("application/cbor-seq", watches[0]), format!("{only}, application/cbor"));
    assert_eq!(
        refused("text/plain", watches[0]),
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq"
    );
}

#[test]
fn documents_of_one_type_are_refused_to_others() {
    let keys = "application/jwk-set+json";
    for accept in ["", "*/*", keys, "text/html, application/jwk-set+json;q=0.5"] {
        assert!(only(accept, keys).is_ok(), "{accept}");
    }
    for accept in ["application/json", "application/*", "text/html"] {
        let message = only(accept, keys).unwrap_err().0.message;
        let expected = "406: Not Acceptable\n\nAvailable representations: application/jwk-set+json";
        assert_eq!(message, expected, "{accept}");
    }
}
