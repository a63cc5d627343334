use super::*;
use proptest::prelude::*;

#[test]
fn messages_are_those_of_the_api() {
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    assert_eq!(dns1123_subdomain("a_b"), [subdomain]);
    assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
    assert_eq!(dns1123_label("1abc"), [""; 0]);
    assert_eq!(
        dns1035_label("1abc"),
        [
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        ]
    );
    assert_eq!(path_segment(".."), ["may not be '..'"]);
    assert_eq!(path_segment("a/%"), ["may not contain '/'", "may not contain '%'"]);
    assert_eq!(path_segment("a:B"), [""; 0]);
    assert_eq!(
        config_key("a b"),
        [
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        ]
    );
    assert_eq!(config_key(".."), ["must not be '..'"]);
    assert_eq!(config_key("..a"), ["must not start with '..'"]);
    assert_eq!(config_key(".a"), [""; 0]);
}

#[test]
fn qualified_names_are_checked_part_by_part() {
    let shape = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    assert_eq!(qualified_name("kubernetes.io/metadata.name"), [""; 0]);
    assert_eq!(qualified_name("-a"), [shape]);
    assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
    assert_eq!(qualified_name("a/"), ["name part must be non-empty", shape]);
    assert_eq!(qualified_name(&"a".repeat(64)), ["name part must be no more than 63 bytes"]);
    assert!(qualified_name("A/a")[0].starts_with("prefix part a lowercase RFC 1123 subdomain"));
    assert!(qualified_name("a/b/c")[0].ends_with("(e.g. 'example.com/MyName')"));
}

#[test]
fn lengths_count_characters_of_names_and_bytes_of_labels() {
    assert_eq!(dns1123_subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
    assert_eq!(dns1123_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
    assert_eq!(
        qualified_name(&format!("{}/a", "a".repeat(254))),
        ["prefix part must be no more than 253 bytes"]
    );
    assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
    assert_eq!(label_value(""), [""; 0]);
    assert!(label_value("-")[0].starts_with("a valid label must be an empty string or consist of"));
}

proptest! {
    #[test]
    fn hand_written_checks_agree_with_the_patterns(text in "[a-bA0._/-]{0,6}|.{0,3}") {
        let matches = |pattern: &str| regex::Regex::new(&format!("^(?:{pattern})$")).unwrap().is_match(&text);
        prop_assert_eq!(is_label(&text), matches(LABEL));
        prop_assert_eq!(is_subdomain(&text), matches(SUBDOMAIN));
        prop_assert_eq!(dns1035_label(&text).is_empty(), matches(LABEL_1035));
        prop_assert_eq!(is_qualified(&text), matches(QUALIFIED));
        prop_assert_eq!(label_value(&text).is_empty(), matches(LABEL_VALUE));
        prop_assert_eq!(is_label_value(&text), matches(LABEL_VALUE));
    }
}
