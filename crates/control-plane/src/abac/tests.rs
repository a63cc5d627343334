use super::*;
use setpoint_registry::{Requested, ResourcePath};

fn parse(text: &str) -> Result<Abac, String> {
    Abac::parse(Path::new("/policies"), text.as_bytes()).map_err(|error| error.to_string())
}

/// A policy of version `v1beta1`.
fn policy(spec: &str) -> String {
    format!(r#"{{"apiVersion":"{GROUP}/v1beta1","kind":"Policy","spec":{spec}}}"#)
}

fn user(name: &str, groups: &[&str]) -> Identity {
    Identity::new(name, groups.iter().copied())
}

/// `verb group/resource namespace` with the group `core`, or `verb /path`.
fn request(identity: &Identity, text: &str) -> Attributes {
    let words: Vec<&str> = text.split(' ').collect();
    let requested = match words[1].split_once('/').unwrap() {
        ("", _) => Requested::Path(words[1].to_owned()),
        (group, resource) => Requested::Unrouted(ResourcePath {
            group: group.trim_start_matches("core").to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            namespace: words.get(2).copied().unwrap_or_default().to_owned(),
            name: String::new(),
            subresource: None,
        }),
    };
    Attributes::new(identity.clone(), words[0].into(), requested)
}

fn allows(policies: &str, identity: &Identity, text: &str) -> bool {
    let policies = parse(policies).unwrap();
    matches!(policies.decide(&request(identity, text)), Decision::Allow(_))
}

#[test]
fn subjects_match_by_user_and_group() {
    let any = r#""namespace":"*","resource":"*","apiGroup":"*""#;
    let known = AUTHENTICATED;
    for (subject, name, groups, expected) in [
        (r#""user":"alice""#, "alice", &[known][..], true),
        (r#""user":"alice""#, "bob", &[known], false),
        (r#""group":"devs""#, "bob", &["devs"], true),
        (r#""group":"devs""#, "bob", &[known], false),
        (r#""user":"bob","group":"devs""#, "bob", &["devs"], true),
        (r#""user":"bob","group":"devs""#, "bob", &[], false),
        (r#""user":"bob","group":"devs""#, "eve", &["devs"], false),
        (r#""user":"*""#, "bob", &[known], true),
        (r#""group":"*""#, "bob", &[known], true),
        (r#""user":"*""#, "system:anonymous", &["system:unauthenticated"], false),
        (r#""user":"bob","group":"*""#, "eve", &[known], true),
        (r#""user":null"#, "", &[known], false),
    ] {
        let policy = policy(&format!("{{{subject},{any}}}"));
        let allowed = allows(&policy, &user(name, groups), "create apps/deployments a");
        assert_eq!(allowed, expected, "{subject} {name} {groups:?}");
    }
}

#[test]
fn resources_and_paths_match_by_all_members() {
    let alice = user("alice", &[]);
    for (members, text, expected) in [
        (r#""resource":"pods","namespace":"a","apiGroup":"""#, "create core/pods a", true),
        (r#""resource":"pods","namespace":"a""#, "create core/pods b", false),
        (r#""resource":"pods","namespace":"*""#, "list core/pods", true),
        (r#""resource":"pods","namespace":"a""#, "list core/pods", false),
        (r#""resource":"*","namespace":"*""#, "get apps/deployments a", false),
        (r#""resource":"*","namespace":"*","apiGroup":"apps""#, "get apps/deployments a", true),
        (r#""resource":"*","namespace":"*","apiGroup":"*""#, "get /healthz", false),
        (r#""resource":"pods","namespace":"*","readonly":true"#, "watch core/pods a", true),
        (r#""resource":"pods","namespace":"*","readonly":true"#, "delete core/pods a", false),
        (r#""nonResourcePath":"*""#, "get /healthz", true),
        (r#""nonResourcePath":"*""#, "get core/pods a", false),
        (r#""nonResourcePath":"/debug/*""#, "post /debug/x", true),
        (r#""nonResourcePath":"/debug/*""#, "get /debug", false),
        (r#""nonResourcePath":"/a","readonly":true"#, "get /a", true),
        (r#""nonResourcePath":"/a","readonly":true"#, "head /a", false),
    ] {
        let policy = policy(&format!(r#"{{"user":"alice",{members}}}"#));
        assert_eq!(allows(&policy, &alice, text), expected, "{members} {text}");
    }
    let nothing = Decision::NoOpinion("No policy matched.".to_owned());
    assert_eq!(parse("").unwrap().decide(&request(&alice, "get /a")), nothing);
}

#[test]
fn empty_members_of_v0_match_everything() {
    let (known, unknown) = (user("alice", &[AUTHENTICATED]), user("eve", &[]));
    for (line, identity, text, expected) in [
        ("{}", &known, "create apps/deployments a", true),
        ("{}", &known, "get /healthz", true),
        ("{}", &unknown, "get /healthz", false),
        (r#"{"user":"alice"}"#, &known, "create apps/deployments a", true),
        (r#"{"user":"bob"}"#, &known, "create apps/deployments a", false),
        (r#"{"resource":"deployments"}"#, &known, "create apps/deployments a", true),
        (r#"{"resource":"deployments"}"#, &known, "get /healthz", false),
        (r#"{"namespace":"b"}"#, &known, "create apps/deployments a", false),
        (r#"{"user":"*","readonly":true}"#, &known, "create apps/deployments a", false),
    ] {
        assert_eq!(allows(line, identity, text), expected, "{line} {text}");
        let line = line.replacen('{', &format!(r#"{{"apiVersion":"{GROUP}/v0","#), 1);
        let line = line.replace(",}", "}");
        assert_eq!(allows(&line, identity, text), expected, "{line} {text}");
    }
    assert!(parse("{}").unwrap().has_unversioned());
    assert!(!parse(&policy("{}")).unwrap().has_unversioned());
}

#[test]
fn lines_that_are_no_policies_are_refused() {
    let fine = policy("null");
    for (line, reason) in [
        ("{", "EOF while parsing an object at line 1 column 1"),
        (
            r#"{"kind":"Pod"}"#,
            r#"no kind "Pod" is registered for version "abac.authorization.kubernetes.io/v0""#,
        ),
        (
            r#"{"apiVersion":"v1","kind":"Policy"}"#,
            r#"no kind "Policy" is registered for version "v1""#,
        ),
        (r#"{"user":1}"#, "invalid type: integer `1`, expected a string at line 1 column 9"),
    ] {
        let text = format!("# policies\n\n{fine}\n{line}\n");
        let error = parse(&text).unwrap_err();
        assert_eq!(error, format!("error reading policy file /policies, line 4: {line}: {reason}"));
    }
    let many = "{}\n".repeat(POLICIES_MAX + 1);
    assert!(parse(&many).unwrap_err().ends_with("more than 10000 policies"));
}

#[test]
fn rules_are_those_of_the_user_in_the_namespace() {
    let text = [
        policy(r#"{"user":"alice","namespace":"*","resource":"pods","readonly":true}"#),
        policy(r#"{"user":"alice","namespace":"b","resource":"secrets"}"#),
        policy(r#"{"user":"bob","namespace":"*","resource":"secrets"}"#),
        "{}".to_owned(),
    ]
    .join("\n");
    let rules = parse(&text).unwrap().rules(&user("alice", &[AUTHENTICATED]), "a").unwrap();
    let shown = serde_json::to_value(rules.concat()).unwrap();
    let all = serde_json::json!(["*"]);
    let expected = serde_json::json!([
        {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": all, "apiGroups": all, "resources": all},
        {"verbs": all, "nonResourceURLs": all},
    ]);
    assert_eq!(shown, expected);
}
