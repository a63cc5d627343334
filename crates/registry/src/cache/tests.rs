use super::*;
use proptest::prelude::*;

#[test]
fn keys_name_their_resource() {
    for (key, prefix) in [
        ("/registry/configmaps/default/a", "/registry/configmaps/"),
        ("/registry/services/specs/default/a", "/registry/services/specs/"),
        ("/registry/services/endpoints/default/a", "/registry/services/endpoints/"),
        ("/registry/ex.io/foos/a", "/registry/ex.io/foos/"),
        ("/registry/namespaces/a.b", "/registry/namespaces/"),
        ("/registry/odd", "/registry/"),
        ("/registry/", "/registry/"),
    ] {
        assert_eq!(prefix_of(key.as_bytes()), prefix);
    }
}

proptest! {
    #[test]
    fn any_key_has_a_prefix(key in "[a./é]{0,20}|/registry/[a./é]{0,20}") {
        let prefix = prefix_of(key.as_bytes());
        prop_assert!(prefix == ROOT || key.starts_with(prefix));
    }
}
