//! A webhook that answers as its path says, and keeps a journal of what it was asked.

use super::process::{Answer, Program, Role};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

fn review(request: &Value, mut response: Value) -> Answer {
    if response["uid"].is_null() {
        response["uid"] = request["uid"].clone();
    }
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response,
    });
    Answer::Now(200, review.to_string())
}

fn patched(request: &Value, patch: &str) -> Answer {
    let patch = STANDARD.encode(patch);
    review(request, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// Puts a value into the annotation of this name.
fn annotated(request: &Value, name: &str, value: &str) -> Answer {
    let mut annotations = request["object"]["metadata"]["annotations"].clone();
    annotations[name] = value.into();
    let patch = json!([{"op": "add", "path": "/metadata/annotations", "value": annotations}]);
    patched(request, &patch.to_string())
}

async fn answer(path: &str, request: &Value) -> Answer {
    let mut words = path.split('/').skip(1);
    let word = words.next().unwrap_or_default();
    let more = words.next().unwrap_or_default();
    match word {
        "allow" => review(request, json!({"allowed": true})),
        "deny" => {
            let status = json!({"code": 403, "reason": "Forbidden", "message": "not today"});
            review(request, json!({"allowed": false, "status": status}))
        }
        // Appends a word to the annotation `order`.
        "order" => {
            let order = &request["object"]["metadata"]["annotations"]["order"];
            annotated(request, "order", &(order.as_str().unwrap_or_default().to_owned() + more))
        }
        // Says which review it was.
        "seen" => annotated(request, "seen", request["uid"].as_str().unwrap()),
        "sleep" => {
            tokio::time::sleep(Duration::from_millis(more.parse().unwrap())).await;
            review(request, json!({"allowed": true}))
        }
        "never" => Answer::Never,
        "endless" => Answer::Endless,
        "redirect" => Answer::Redirect("/allow"),
        "garbage" => Answer::Now(200, "<html>".to_owned()),
        "empty" => Answer::Now(200, String::new()),
        "huge" => Answer::Now(200, " ".repeat((16 << 20) + 1)),
        "uid" => review(request, json!({"allowed": true, "uid": "x"})),
        "half-a-patch" => patched(request, "[{"),
        "other-patch" => {
            // Nobody asks for the type of a patch without operations.
            let patch = STANDARD.encode(r#"[{"op": "remove", "path": "/data"}]"#);
            review(request, json!({"allowed": true, "patchType": "MergePatch", "patch": patch}))
        }
        "patch-without-type" => {
            let remove = |path: &str| json!({"op": "remove", "path": path});
            patched(request, &json!([remove("/kind"), remove("/apiVersion")]).to_string())
        }
        "yaml" => {
            let uid = request["uid"].as_str().unwrap_or_default();
            let answer = format!(
                "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse: {{uid: {uid}, allowed: true}}\n"
            );
            Answer::Now(200, answer)
        }
        "patch-of-nothing" => {
            patched(request, &json!([{"op": "remove", "path": "/data/absent"}]).to_string())
        }
        "huge-patch" => {
            let value = "y".repeat(2 << 20);
            patched(request, &json!([{"op": "add", "path": "/data/y", "value": value}]).to_string())
        }
        _ => Answer::Now(500, "on fire".to_owned()),
    }
}

/// The program of the process.
pub(super) fn program(role: Role) -> Arc<Program> {
    let journal = role.folder.join("journal");
    let journal = Arc::new(File::options().create(true).append(true).open(journal).unwrap());
    Arc::new(move |path, body| {
        let journal = journal.clone();
        async move {
            let review: Value = serde_json::from_slice(&body).unwrap_or_default();
            let request = &review["request"];
            let line = json!({
                "path": path, "uid": request["uid"], "operation": request["operation"],
                "name": request["name"], "annotations": request["object"]["metadata"]["annotations"],
            });
            // One write, so that no line is half written when the process is killed.
            (&*journal).write_all(format!("{line}\n").as_bytes()).unwrap();
            answer(&path, request).await
        }
        .boxed()
    })
}
