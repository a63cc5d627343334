//! kubectl of today on a server with RBAC: who am I, what may I do, and give somebody a role.

use crate::server::Server;
use std::ffi::OsString;

/// A server with RBAC and a token for jane, who is in the group `devs`.
fn server_with_jane(folder: &tempfile::TempDir) -> Server {
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, "jane-s-token,jane,7,\"devs\"\n").unwrap();
    let options = ["--authorization-mode=RBAC", "--token-auth-file"].map(OsString::from);
    let mut options: Vec<&std::ffi::OsStr> = options.iter().map(OsString::as_os_str).collect();
    options.push(tokens.as_os_str());
    let server = Server::start_with(&options);
    server.kubectl().ok("config set-credentials jane --token=jane-s-token");
    server
}

#[test]
fn a_user_may_do_what_roles_allow() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_with_jane(&folder);
    let kubectl = server.kubectl();
    let who = kubectl.ok("--user=jane auth whoami");
    assert!(who.contains("jane") && who.contains("system:authenticated"), "{who}");
    assert!(kubectl.both_outputs("auth can-i '*' '*'").contains("yes"));
    assert!(kubectl.fails("--user=jane auth can-i list pods").is_empty());
    let refused = kubectl.fails("--user=jane get pods");
    assert!(
        refused.contains(
            r#"User "jane" cannot list resource "pods" in API group "" in the namespace "default""#
        ),
        "{refused}"
    );

    kubectl.ok("create rolebinding devs --clusterrole=edit --group=devs");
    kubectl.eventually("--user=jane get pods", |said| said.contains("No resources found"));
    assert!(kubectl.ok("--user=jane auth can-i create deployments").contains("yes"));
    assert!(kubectl.ok("--user=jane auth can-i --list").contains("configmaps"));
    assert!(kubectl.fails("--user=jane -n kube-system get pods").contains("forbidden"));
    assert_eq!(
        kubectl.ok("--user=jane create configmap own --from-literal=a=1"),
        "configmap/own created\n"
    );
    // `edit` cannot give roles.
    server.file(
        "more.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: more}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}\n",
    );
    let given = kubectl.fails("--user=jane create -f more.yaml");
    assert!(given.contains("forbidden"), "{given}");
}

#[test]
fn a_user_may_do_what_policies_of_a_file_allow() {
    let folder = tempfile::tempdir().unwrap();
    let (tokens, policies) = (folder.path().join("tokens.csv"), folder.path().join("policies"));
    std::fs::write(&tokens, "jane-s-token,jane,7,\"devs\"\n").unwrap();
    let version = r#""apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy""#;
    let pods = r#"{"group":"devs","namespace":"*","resource":"pods","readonly":true}"#;
    let paths = r#"{"user":"jane","nonResourcePath":"*","readonly":true}"#;
    let lines = [pods, paths].map(|spec| format!("{{{version},\"spec\":{spec}}}\n"));
    std::fs::write(&policies, lines.concat()).unwrap();
    let server = Server::start_with(&[
        "--authorization-mode=RBAC,ABAC".as_ref(),
        "--authorization-policy-file".as_ref(),
        policies.as_os_str(),
        "--token-auth-file".as_ref(),
        tokens.as_os_str(),
    ]);
    let kubectl = server.kubectl();
    kubectl.ok("config set-credentials jane --token=jane-s-token");
    kubectl.ok("config set-context jane --cluster=setpoint --user=jane");
    let pods = kubectl.both_outputs("--context=jane get pods -A");
    assert!(pods.contains("No resources found"), "{pods}");
    assert!(kubectl.ok("--context=jane get --raw /metrics").contains("apiserver_request_total"));
    let refused = kubectl.fails("--context=jane get secrets");
    assert!(refused.contains("No policy matched."), "{refused}");
    assert!(kubectl.fails("--context=jane auth can-i create pods").is_empty());
    let held = kubectl.ok("--context=jane auth can-i --list");
    assert!(held.contains("pods"), "{held}");
}

#[test]
fn an_administrator_acts_as_somebody_else() {
    let server = Server::start_with(&[OsString::from("--authorization-mode=RBAC").as_os_str()]);
    let kubectl = server.kubectl();
    let who = kubectl.ok("auth whoami --as=jane --as-group=devs --as-uid=7");
    assert!(who.contains("jane") && who.contains("devs") && who.contains('7'), "{who}");
    assert!(kubectl.fails("get pods --as=jane").contains(r#"User "jane" cannot list"#));
    let account = "--as=system:serviceaccount:default:bot";
    kubectl.ok("create rolebinding bots --clusterrole=view --serviceaccount=default:bot");
    kubectl.eventually(&format!("get pods {account}"), |said| said.contains("No resources found"));
    // The last --as counts, and a master may be anybody.
    kubectl.ok(&format!("get pods {account} --as-group=system:masters --as=jane"));
}

#[test]
fn a_service_accounts_token_may_do_what_roles_allow() {
    let server = Server::start_with(&["--authorization-mode=RBAC".as_ref()]);
    let kubectl = server.kubectl();
    kubectl.ok("create serviceaccount robot");
    let token = kubectl.ok(
        "create token robot --duration=10m --audience=https://kubernetes.default.svc.cluster.local",
    );
    let as_robot = |token: &str, rest: &str| format!("--token={} {rest}", token.trim());
    // The administrator's client certificate would come first.
    kubectl.ok("config set-credentials nobody");
    kubectl.ok("config set-context robot --cluster=setpoint --user=nobody");
    let robot = |rest: &str| as_robot(&token, &format!("--context=robot {rest}"));
    let who = kubectl.ok(&robot("auth whoami"));
    assert!(
        who.contains("system:serviceaccount:default:robot")
            && who.contains("system:serviceaccounts:default"),
        "{who}"
    );
    let refused = kubectl.fails(&robot("get configmaps"));
    assert!(
        refused.contains(
            r#"User "system:serviceaccount:default:robot" cannot list resource "configmaps""#
        ),
        "{refused}"
    );
    kubectl.ok("create rolebinding robots --clusterrole=view --serviceaccount=default:robot");
    kubectl.eventually(&robot("get configmaps"), |said| !said.contains("forbidden"));
    assert!(kubectl.fails(&robot("create configmap a")).contains("forbidden"));
    // Keys may be read by service accounts.
    assert!(kubectl.ok(&robot("get --raw /openid/v1/jwks")).contains("ES256"));

    // A token ends with the object that it is bound to.
    kubectl.ok("create secret generic anchor");
    let bound =
        kubectl.ok("create token robot --bound-object-kind=Secret --bound-object-name=anchor");
    let bound = |rest: &str| as_robot(&bound, &format!("--context=robot {rest}"));
    kubectl.ok(&bound("get configmaps"));
    kubectl.ok("delete secret anchor");
    kubectl.eventually(&bound("get configmaps"), |said| said.contains("Unauthorized"));
    let short = kubectl.fails("create token robot --duration=1m");
    assert!(short.contains("may not specify a duration less than 10 minutes"), "{short}");
    let forged = kubectl.fails("--context=robot --token=a.b.c get configmaps");
    assert!(forged.contains("Unauthorized"), "{forged}");
}
