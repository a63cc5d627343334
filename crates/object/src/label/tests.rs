use super::*;
use proptest::prelude::*;
use serde_json::json;

fn matches(selector: &str, labels: &[(&str, &'static str)]) -> bool {
    let selector = Selector::parse(selector).unwrap();
    selector.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
}

#[test]
fn messages_are_those_of_the_api() {
    for (text, message) in [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        (
            "a foo b",
            "unable to parse requirement: found 'foo', expected: in, notin, =, ==, !=, gt, lt",
        ),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
        (
            "a>b",
            r#"unable to parse requirement: values[0]: Invalid value: "b": for 'Gt', 'Lt' operators, the value must be an integer"#,
        ),
        (
            "-a",
            r#"unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ),
        (
            "a=-",
            r#"unable to parse requirement: values[0][a]: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
        ),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a==!", "unable to parse requirement: found '!', expected: identifier"),
    ] {
        assert_eq!(Selector::parse(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn operators_match_as_in_the_api() {
    let labels = [("a", "1"), ("e", ""), ("in", "x")];
    for (selector, expected) in [
        ("", true),
        ("a", true),
        ("z", false),
        ("!z", true),
        ("!a", false),
        ("a=1", true),
        (" a == 1 ", true),
        ("a=2", false),
        ("z=", false),
        ("e=", true),
        ("e", true),
        ("a!=2", true),
        ("z!=2", true),
        ("a!=1", false),
        ("a in (0,1)", true),
        ("a in (0 , 2)", false),
        ("e in ()", true),
        ("e in (,x)", true),
        ("z in ()", false),
        ("a notin (0)", true),
        ("z notin (0)", true),
        ("a notin (1)", false),
        ("a>0", true),
        ("a>1", false),
        ("a<2", true),
        ("z<2", false),
        ("in=x", true),
        ("in in (x,in)", true),
        ("a,e,!z", true),
        ("a,!e", false),
    ] {
        assert_eq!(matches(selector, &labels), expected, "{selector}");
    }
}

#[test]
fn selectors_display_sorted_by_key() {
    let selector = Selector::parse("c notin (y,x,y), b==1,!a , d").unwrap();
    assert_eq!(selector.to_string(), "!a,b=1,c notin (x,y),d");
}

#[test]
fn objects_give_the_same_selectors() {
    let object = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
        {"key": "a", "operator": "In", "values": ["y", "x"]},
        {"key": "c", "operator": "DoesNotExist"},
    ]});
    let selector = Selector::from_object(&object).unwrap().unwrap();
    assert_eq!(selector.to_string(), "a in (x,y),b=1,!c");
    let twice =
        json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x", "y"]}]});
    let selector = Selector::from_object(&twice).unwrap().unwrap();
    assert_eq!(selector.to_string(), "a in (x,y,y)");
    assert!(selector.matches(|_| Some("y")) && !selector.matches(|_| Some("z")));
    assert_eq!(Selector::from_object(&json!(null)), Ok(None));
    assert_eq!(Selector::from_object(&json!({})), Ok(Some(Selector::everything())));
}

#[test]
fn invalid_objects_have_the_errors_of_the_api() {
    let expression = |operator: &str, values: &[&str]| {
        let object =
            json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        Selector::from_object(&object).unwrap_err().to_string()
    };
    assert_eq!(expression("Like", &[]), r#""Like" is not a valid label selector operator"#);
    assert_eq!(
        expression("In", &[]),
        "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
    );
    assert_eq!(
        expression("Exists", &["b"]),
        r#"values: Invalid value: ["b"]: values set must be empty for exists and does not exist"#
    );
}

#[test]
fn zero_bytes_end_the_text_between_tokens_as_in_go() {
    let parsed = |text: &str| Selector::parse(text).map(|selector| selector.to_string());
    for text in ["\0", " \0=", "\0a=b"] {
        assert_eq!(parsed(text), Ok(String::new()), "{text:?}");
    }
    for text in ["a=b\0", "a=\0b", "a\0=b", "a=b \0,", "a=b\0\0c"] {
        assert_eq!(parsed(text), Ok("a=b".into()), "{text:?}");
    }
    let error = parsed("a=b\0c").unwrap_err().to_string();
    assert!(error.ends_with("found 'c', expected: ',' or 'end of string'"), "{error}");
}

#[test]
fn errors_of_many_values_are_counted_beyond_some_kilobytes() {
    let key = format!("{}/{}", "a.".repeat(126) + "a", "b".repeat(63));
    let n_values = 15_000;
    let values: Vec<String> = (0..n_values).map(|n| format!("-{n}")).collect();
    let text = format!("{key} in ({},x)", values.join(","));
    let error = Selector::parse(&text).unwrap_err().to_string();
    assert!(error.len() < 40 << 10, "{}", error.len());
    let n_shown = error.matches("Invalid value").count();
    assert!(n_shown > 10, "{n_shown}");
    assert!(error.ends_with(&format!("] and {} more", n_values - n_shown)), "{error}");
    let expressions = serde_json::json!([{"key": "a", "operator": "In", "values": values.clone()}]);
    let object = serde_json::json!({"matchExpressions": expressions});
    let error = Selector::from_object(&object).unwrap_err().to_string();
    assert!(error.len() < 40 << 10, "{}", error.len());
}

fn requirement() -> impl Strategy<Value = String> {
    let key = "([a-z]{1,3}\\.io/)?[a-z]([a-zA-Z_.-]{0,3}[a-z])?|in|notin";
    let value = || "([a-z0-9]([a-z_.-]{0,3}[a-z])?)?|in|notin";
    let values = proptest::collection::vec(value(), 0..4).prop_map(|v| v.join(", "));
    (key, 0..8, values, value(), any::<i64>()).prop_map(|(k, form, vs, v, n)| match form {
        0 => k,
        1 => format!("!{k}"),
        2 => format!("{k} in ({vs})"),
        3 => format!("{k} notin ({vs})"),
        4 => format!("{k}={v}"),
        5 => format!("{k} != {v}"),
        6 => format!("{k} > {}", n.unsigned_abs() / 2),
        _ => format!("{k}<{}", n.unsigned_abs() / 2),
    })
}

fn near_value() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]?", "-?[0-3]"]
}
fn near_requirement() -> impl Strategy<Value = String> {
    prop_oneof!["!?[abc]", "[abc] (in|notin) \\([ab0-3](,[ab0-3]){0,3}\\)", "[abc](=|!=|>|<)[0-3]"]
}

proptest! {
    #[test]
    fn matcher_matches_what_its_selector_matches(
        requirements in proptest::collection::vec(near_requirement(), 0..5),
        labels in proptest::collection::btree_map("[abc]", near_value(), 0..4),
    ) {
        let selector = Selector::parse(&requirements.join(",")).unwrap();
        let expected = selector.matches(|key| labels.get(key).map(String::as_str));
        let pairs: Vec<_> = labels.iter().collect();
        prop_assert_eq!(Matcher::from(&selector).matches(&pairs), expected, "{}", selector);
    }

    #[test]
    fn displayed_selector_parses_to_the_same(requirements in proptest::collection::vec(requirement(), 0..4)) {
        let selector = Selector::parse(&requirements.join(" , ")).unwrap();
        prop_assert_eq!(selector.requirements().len(), requirements.len());
        prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
    }

    #[test]
    fn no_text_causes_a_panic(text in "([a-b!=<>(), \\x00]|in|notin|é){0,12}") {
        _ = Selector::parse(&text);
    }
}
