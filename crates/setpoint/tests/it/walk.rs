//! Every route of a server, walked without credentials and by somebody without rights. The routes
//! come from the server's own lists, so a new one is walked, too.

use crate::rbac::{send, settled, with_rbac};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use setpoint::apiserver::ApiServer;
use setpoint::registry::Identity;

/// What everybody may read without credentials. Nothing else is public.
const PUBLIC: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// A request.
type Step = (Method, String);

/// The methods and paths of a resource or subresource by its verbs.
fn steps(collection: &str, subresource: &str, verbs: &Value) -> Vec<Step> {
    let object = format!("{collection}/x{subresource}");
    let verbs = verbs.as_array().unwrap().iter().map(|verb| verb.as_str().unwrap());
    let step = |verb: &str| match verb {
        "get" => (Method::GET, object.clone()),
        "list" => (Method::GET, collection.to_owned()),
        "watch" => (Method::GET, format!("{collection}?watch=true")),
        "create" if subresource.is_empty() => (Method::POST, collection.to_owned()),
        "create" => (Method::POST, object.clone()),
        "update" => (Method::PUT, object.clone()),
        "patch" => (Method::PATCH, object.clone()),
        "delete" => (Method::DELETE, object.clone()),
        "deletecollection" => (Method::DELETE, collection.to_owned()),
        other => panic!("no method for the verb {other}"),
    };
    verbs.map(step).collect()
}

/// All routes: paths that the server lists at its root, and the verbs of all resources.
async fn routes(server: &ApiServer) -> Vec<Step> {
    let get = async |path: &str| {
        let (status, answer) =
            send(server, Identity::admin(), Method::GET, path, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        answer
    };
    let paths = get("/").await["paths"].as_array().unwrap().clone();
    let paths: Vec<String> = paths.iter().map(|path| path.as_str().unwrap().to_owned()).collect();
    let mut routes: Vec<Step> = paths.iter().map(|path| (Method::GET, path.clone())).collect();
    // Paths that the list of a real server has not, either.
    let debug = "/debug/api_priority_and_fairness";
    let pages = ["priority_levels", "queues", "requests"];
    let pages = pages.map(|page| format!("{debug}/dump_{page}"));
    routes.extend(pages.map(|page| (Method::GET, page)));
    for path in [
        "/",
        "/version",
        "/version/",
        "/api/v1",
        "/openapi/v2",
        "/openapi/v3/api/v1",
        "/metrics",
        "/metrics/slis",
        "/debug/pprof/",
        "/logs/",
        "/setpoint",
        "/nowhere",
    ] {
        routes.push((Method::GET, path.to_owned()));
        routes.push((Method::POST, path.to_owned()));
    }
    let versions = paths.iter().filter(|path| {
        path.starts_with("/api/") || path.starts_with("/apis/") && path.matches('/').count() == 3
    });
    for version in versions {
        for resource in get(version).await["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let (name, subresource) = name.split_once('/').unwrap_or((name, ""));
            let subresource = match subresource {
                "" => String::new(),
                subresource => format!("/{subresource}"),
            };
            let places: &[&str] = match resource["namespaced"].as_bool().unwrap() {
                true if subresource.is_empty() => &["", "/namespaces/default"],
                true => &["/namespaces/default"],
                false => &[""],
            };
            for place in places {
                let collection = format!("{version}{place}/{name}");
                let steps = steps(&collection, &subresource, &resource["verbs"]);
                // Without a namespace, there are only lists of namespaced resources.
                let only_lists = places.len() == 2 && place.is_empty();
                routes.extend(steps.into_iter().filter(|(method, path)| {
                    !only_lists || *method == Method::GET && !path.ends_with("/x")
                }));
            }
        }
    }
    routes
}

fn is_public(path: &str) -> bool {
    PUBLIC.contains(&path)
}

/// The code for a request without credentials. They are not needed for single health checks, but a
/// right is.
fn code_without_credentials(path: &str) -> u16 {
    let is_check =
        |public: &&str| path.strip_prefix(*public).is_some_and(|rest| rest.starts_with('/'));
    match path {
        path if is_public(path) => 200,
        _ if PUBLIC.iter().any(is_check) => 403,
        _ => 401,
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_without_rights_gets_in_anywhere() {
    with_rbac(async |server| {
        settled().await;
        let routes = routes(&server).await;
        assert!(routes.len() > 700, "{} routes", routes.len());
        for (method, path) in routes {
            // The body is never looked at.
            let body = || match method {
                Method::GET => Value::Null,
                _ => json!({"kind": "x"}),
            };
            // Without the groups that have the rights of all users.
            let nobody = Identity::new("nobody", []);
            let (status, _) = send(&server, nobody, method.clone(), &path, body()).await;
            assert_eq!(status, 403, "{method} {path} of a user without rights");
            let request = http::Request::builder().method(method.clone()).uri(&path);
            let request = request.body(http_body_util::Full::new(bytes::Bytes::new())).unwrap();
            let status = server.serve(request).await.status();
            let expected = code_without_credentials(&path);
            assert_eq!(status, expected, "{method} {path} without credentials");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_other_spelling_of_a_path_gets_in() {
    with_rbac(async |server| {
        settled().await;
        for path in [
            "//api/v1/secrets",
            "/api//v1/secrets",
            "/api/v1//secrets",
            "/api/v1/secrets/",
            "/api/v1/./secrets",
            "/healthz/../api/v1/secrets",
            "/livez/%2e%2e/api/v1/secrets",
            "/readyz%2f..%2fapi%2fv1%2fsecrets",
            "/healthz%2fx",
            "/api%2fv1%2fsecrets",
            "/api/v1/%73ecrets",
            "/API/v1/secrets",
            "/api/V1/Secrets",
            "/api/v1/watch/secrets",
            "/api/v1/watch/namespaces/default/secrets/x",
            "/api/v1/namespaces/default/secrets/..",
            "/api/v1/namespaces/..%2fdefault/secrets",
            "/api/v1/secrets?fieldSelector=metadata.name=x",
            "/api/v1/secrets;a=b",
            "/healthzx",
            "/version/../metrics",
            "/proxy",
        ] {
            for method in [Method::GET, Method::DELETE, Method::HEAD, Method::OPTIONS] {
                let nobody = Identity::new("nobody", []);
                let (status, _) = send(&server, nobody, method.clone(), path, Value::Null).await;
                let is_refused = status == 403 || status == 404;
                assert!(is_refused, "{method} {path}: {status}");
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn rights_for_one_thing_are_none_for_its_neighbour() {
    use crate::rbac::{admin, binding, bob, devs, role};
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    with_rbac(async |server| {
        let rules = json!([
            {"verbs": ["update", "patch"], "apiGroups": ["apps"], "resources": ["deployments/status"]},
            {"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own"]},
        ]);
        admin(&server, &format!("{RBAC}/roles"), role("Role", "some", rules)).await;
        let bound = binding("RoleBinding", "some", "Role", "some", devs());
        admin(&server, &format!("{RBAC}/rolebindings"), bound).await;
        settled().await;
        let apps = "/apis/apps/v1/namespaces/default/deployments";
        let core = "/api/v1/namespaces/default";
        for (method, path, expected) in [
            (Method::PATCH, format!("{apps}/x/status"), 415),
            (Method::PATCH, format!("{apps}/x"), 403),
            (Method::PUT, format!("{apps}/x/scale"), 403),
            (Method::DELETE, format!("{core}/pods/x"), 404),
            (Method::DELETE, format!("{core}/pods"), 403),
            (Method::POST, format!("{core}/pods/x/eviction"), 403),
            (Method::GET, format!("{core}/pods/x/log"), 403),
            (Method::GET, format!("{core}/secrets/own"), 404),
            (Method::GET, format!("{core}/secrets/other"), 403),
            (Method::GET, format!("{core}/secrets"), 403),
            (Method::GET, format!("{core}/secrets?fieldSelector=metadata.name%3Down"), 403),
            (Method::GET, format!("{core}/secrets?watch=true&fieldSelector=metadata.name%3Down"), 403),
            (Method::GET, "/api/v1/namespaces/kube-system/secrets/own".to_owned(), 403),
        ] {
            let (status, answer) =
                send(&server, bob(), method.clone(), &path, Value::Null).await;
            assert_eq!(status, expected, "{method} {path}: {answer}");
        }
    })
    .await;
}
