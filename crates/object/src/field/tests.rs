use super::*;
use serde_json::json;

#[test]
fn errors_have_the_texts_of_the_api() {
    let spec = Path::new("spec");
    for (error, text, reason) in [
        (
            Error::required(spec.child("a"), "name or generateName is required"),
            "spec.a: Required value: name or generateName is required",
            "FieldValueRequired",
        ),
        (Error::required(spec.child("a"), ""), "spec.a: Required value", "FieldValueRequired"),
        (
            Error::invalid(spec.child("c").index(0).child("n"), &json!("b"), "must be Foo"),
            r#"spec.c[0].n: Invalid value: "b": must be Foo"#,
            "FieldValueInvalid",
        ),
        (
            Error::type_invalid(spec.clone(), &json!(3), "must be of type string"),
            "spec: Invalid value: 3: must be of type string",
            "FieldValueTypeInvalid",
        ),
        (
            Error::not_supported(spec.key("k"), &json!("x"), &["A", "B"]),
            r#"spec[k]: Unsupported value: "x": supported values: "A", "B""#,
            "FieldValueNotSupported",
        ),
        (
            Error::duplicate(Path::root(), &json!({"b": "<", "a": 1})),
            r#"<nil>: Duplicate value: {"a":1,"b":"\u003c"}"#,
            "FieldValueDuplicate",
        ),
        (
            Error::not_found(spec.clone(), &json!("x")),
            r#"spec: Not found: "x""#,
            "FieldValueNotFound",
        ),
        (Error::forbidden(spec.clone(), "no"), "spec: Forbidden: no", "FieldValueForbidden"),
        (
            Error::too_long(spec.clone(), 63),
            "spec: Too long: may not be more than 63 bytes",
            "FieldValueTooLong",
        ),
        (
            Error::too_many(spec.clone(), 3, 1),
            "spec: Too many: 3: must have at most 1 item",
            "FieldValueTooMany",
        ),
        (Error::internal(spec.clone(), "x"), "spec: Internal error: x", "InternalError"),
    ] {
        assert_eq!((error.to_string().as_str(), error.reason()), (text, reason));
    }
}

#[test]
fn values_are_printed_as_in_go() {
    for (value, text) in [
        (
            json!("a\"b\\\n\u{0}\u{7f}é\u{a0}e\u{301}"),
            "\"a\\\"b\\\\\\n\\x00\\x7fé\\u00a0e\u{301}\"",
        ),
        (json!(-1), "-1"),
        (json!(1.0), "1"),
        (json!(1.5), "1.5"),
        (json!(1e21), "1e+21"),
        (json!(100_000.0), "100000"),
        (json!(1_000_000.0), "1e+06"),
        (json!(123_456_789.5), "1.234567895e+08"),
        (json!(0.0001), "0.0001"),
        (json!(0.00001), "1e-05"),
        (json!(true), "true"),
        (json!(null), "null"),
        (json!(["a", 1]), r#"["a",1]"#),
    ] {
        assert_eq!(show(&value), text);
    }
}

#[test]
fn aggregate_has_each_error_once() {
    let a = Error::required(Path::new("a"), "");
    let b = Error::required(Path::new("b"), "");
    assert_eq!(aggregate(std::slice::from_ref(&a)), "a: Required value");
    assert_eq!(aggregate(&[a.clone(), b, a]), "[a: Required value, b: Required value]");
}

#[test]
fn paths_compare_by_text() {
    let long = Path::root().child("spec").child("a.b").index(10).key("k").child("c");
    assert_eq!(long.text(), "spec.a.b[10][k].c");
    for (path, text) in [
        (Path::root(), ""),
        (Path::new(""), ""),
        (Path::root().index(0).child("a"), "[0].a"),
        (Path::new("a").index(9).index(10).index(100), "a[9][10][100]"),
        (Path::root().key("").key("é"), "[][é]"),
        (long.clone(), "spec.a.b[10][k].c"),
    ] {
        assert_eq!((path.text().as_str(), path.n_bytes()), (text, text.len()));
        assert_eq!(path, Path::new(text));
    }
    assert_eq!(Path::root().to_string(), "<nil>");
    assert!(Path::new("a").child("c") > Path::new("a.b"));
}

#[test]
fn extending_a_path_does_not_copy_it() {
    let mut path = Path::new("x".repeat(1 << 20));
    // Would be a terabyte if it were copied.
    let children: Vec<Path> = (0..1 << 20).map(|n| path.index(n)).collect();
    assert_eq!(children[7].n_bytes(), (1 << 20) + 3);
    for _ in 0..100_000 {
        path = path.child("a");
    }
    assert_eq!(path.n_bytes(), (1 << 20) + 200_000);
}

#[test]
fn errors_are_bounded() {
    let mut errors = Errors::new();
    let path = Path::new("x".repeat(1 << 20));
    for n in 0..1000 {
        errors.push(Error::required(path.index(n), ""));
    }
    assert!(errors.is_full());
    assert_eq!(errors.len(), 4);
    errors.retain(|error| error.path == path.index(2));
    assert!(!errors.is_full());
    // Errors without a text count as well.
    let mut errors = Errors::new();
    errors.extend((0..1 << 20).map(|_| Error::required(Path::root(), "")));
    assert_eq!(errors.len(), Errors::BYTES_MAX / size_of::<Error>() + 1);
}
