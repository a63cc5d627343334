//! The life of a Deployment over four nodes, from the first replica to a rollback: the loop heals,
//! no instant has more pods than the surge permits, and each write names the pass that sent it.
//!
//! The listings in `docs/story.md` are this test's. `UPDATE_EXPECT=1` writes them again.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

use expect_test::expect_file;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube_client::Api;
use kube_client::api::{WatchEvent, WatchParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_controllers::Selection;
use setpoint_testenv::TestEnv;
use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE: &str = "../../docs/story.md";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// What must hold at every event of the watch.
#[derive(Debug, Clone, Copy)]
struct Rule {
    active_max: usize,
    available_min: usize,
}

/// A pod as the watch shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    version: String,
    is_active: bool,
    is_available: bool,
}

#[derive(Debug)]
struct State {
    rule: Rule,
    pods: BTreeMap<String, Seen>,
}

/// A watch of the pods that checks the rule at every event.
#[derive(Debug, Clone)]
struct Observer(Arc<Mutex<State>>);

impl Observer {
    fn new() -> Self {
        let rule = Rule { active_max: 0, available_min: 0 };
        Self(Arc::new(Mutex::new(State { rule, pods: BTreeMap::new() })))
    }

    fn rule(&self, active_max: usize, available_min: usize) {
        self.0.lock().rule = Rule { active_max, available_min };
    }

    /// Watches until a rule is broken.
    async fn run(&self, env: &TestEnv) {
        let pods = Api::<Pod>::default_namespaced(env.client());
        let mut version = "0".to_owned();
        loop {
            let params = WatchParams::default().labels("app=web");
            let mut events = pods.watch(&params, &version).await.unwrap().boxed();
            while let Some(event) = events.try_next().await.unwrap() {
                version = self.see(event, &version);
            }
        }
    }

    fn see(&self, event: WatchEvent<Pod>, version: &str) -> String {
        let mut state = self.0.lock();
        let (pod, is_gone) = match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, false),
            WatchEvent::Deleted(pod) => (pod, true),
            WatchEvent::Bookmark(mark) => return mark.metadata.resource_version,
            WatchEvent::Error(status) => panic!("{version}: {status:?}"),
        };
        let name = pod.metadata.name.unwrap();
        let version = pod.metadata.resource_version.unwrap();
        let is_active = pod.metadata.deletion_timestamp.is_none();
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_ready = conditions.iter().any(|held| held.type_ == "Ready" && held.status == "True");
        if is_gone {
            state.pods.remove(&name);
        } else {
            let is_available = is_active && is_ready;
            let seen = Seen { version: version.clone(), is_active, is_available };
            state.pods.insert(name.clone(), seen);
        }
        let n_active = state.pods.values().filter(|pod| pod.is_active).count();
        let n_available = state.pods.values().filter(|pod| pod.is_available).count();
        let rule = state.rule;
        assert!(n_active <= rule.active_max, "r{version} {name}: {n_active} pods, {rule:?}");
        assert!(
            n_available >= rule.available_min,
            "r{version} {name}: {n_available} available, {rule:?}"
        );
        version
    }

    /// Waits until it has seen `n` ready pods, and no others, as the server has them.
    async fn reaches(&self, env: &TestEnv, n: usize) {
        env.eventually(&format!("{n} pods are ready"), async || {
            let list = ask(env, "GET", PODS, Value::Null).await;
            let versions: BTreeMap<String, String> = list["items"]
                .as_array()?
                .iter()
                .map(|pod| [&pod["metadata"]["name"], &pod["metadata"]["resourceVersion"]])
                .map(|texts| texts.map(|text| text.as_str().unwrap_or_default().to_owned()))
                .map(|[name, version]| (name, version))
                .collect();
            let state = self.0.lock();
            let seen: BTreeMap<String, String> =
                state.pods.iter().map(|(name, pod)| (name.clone(), pod.version.clone())).collect();
            let n_available = state.pods.values().filter(|pod| pod.is_available).count();
            (seen == versions && n_available == n && seen.len() == n).then_some(())
        })
        .await;
    }
}

/// Sends a request as kubectl does.
async fn ask(env: &TestEnv, method: &str, path: &str, body: Value) -> Value {
    let content_type = match method {
        "PATCH" => "application/strategic-merge-patch+json",
        _ => "application/json",
    };
    let sign = if method == "GET" { "" } else { "?fieldManager=kubectl" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(format!("{path}{sign}"));
    let request = request.header("content-type", content_type).body(body).unwrap();
    env.client().request(request).await.unwrap()
}

/// Waits until the Deployment says that it is done.
async fn rolled_out(env: &TestEnv) {
    env.eventually("the rollout is complete", async || {
        let web = ask(env, "GET", WEB, Value::Null).await;
        let (wanted, status) = (&web["spec"]["replicas"], &web["status"]);
        let is_current = status["observedGeneration"] == web["metadata"]["generation"];
        let is_done = ["replicas", "updatedReplicas", "availableReplicas"]
            .into_iter()
            .all(|count| status[count] == *wanted);
        (is_current && is_done).then_some(())
    })
    .await;
}

async fn set_image(env: &TestEnv, image: &str) {
    let containers = json!([{"name": "nginx", "image": image}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    ask(env, "PATCH", WEB, patch).await;
}

/// What the user does. Each step starts with a mark in the timeline.
async fn story(env: &TestEnv, observer: &Observer) {
    let step = |name: &str| env.timeline().note(format!("== {name}"));
    env.eventually("the nodes are ready", async || {
        let nodes = ask(env, "GET", "/api/v1/nodes", Value::Null).await;
        let free = |node: &Value| node["spec"]["taints"].is_null();
        let nodes = nodes["items"].as_array()?;
        (nodes.len() == 4 && nodes.iter().all(free)).then_some(())
    })
    .await;

    step("create");
    observer.rule(8, 0);
    let labels = json!({"app": "web"});
    let template = json!({
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "nginx", "image": "nginx:1"}]},
    });
    let spec = json!({"replicas": 8, "selector": {"matchLabels": labels}, "template": template});
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": labels}, "spec": spec,
    });
    ask(env, "POST", DEPLOYMENTS, web).await;
    rolled_out(env).await;
    observer.reaches(env, 8).await;

    step("heal");
    observer.rule(8, 7);
    let pods = ask(env, "GET", PODS, Value::Null).await;
    let name = pods["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    ask(env, "DELETE", &format!("{PODS}/{name}"), Value::Null).await;
    rolled_out(env).await;
    observer.reaches(env, 8).await;

    step("scale");
    observer.rule(12, 8);
    ask(env, "PATCH", &format!("{WEB}/scale"), json!({"spec": {"replicas": 12}})).await;
    rolled_out(env).await;
    observer.reaches(env, 12).await;

    step("roll");
    // A quarter of twelve, both ways.
    observer.rule(15, 9);
    set_image(env, "nginx:2").await;
    rolled_out(env).await;
    observer.reaches(env, 12).await;

    step("stall");
    set_image(env, "nginx:404").await;
    env.eventually("the rollout stalls", async || {
        let status = ask(env, "GET", WEB, Value::Null).await["status"].clone();
        (status["updatedReplicas"] == 6 && status["availableReplicas"] == 9).then_some(())
    })
    .await;

    step("undo");
    set_image(env, "nginx:2").await;
    rolled_out(env).await;
    observer.reaches(env, 12).await;

    step("pause");
    observer.rule(12, 12);
    ask(env, "PATCH", WEB, json!({"spec": {"paused": true}})).await;
    set_image(env, "nginx:3").await;
    env.eventually("the controller has seen it", async || {
        let web = ask(env, "GET", WEB, Value::Null).await;
        let is_seen = web["status"]["observedGeneration"] == web["metadata"]["generation"];
        is_seen.then_some(())
    })
    .await;

    step("resume");
    observer.rule(15, 9);
    ask(env, "PATCH", WEB, json!({"spec": {"paused": null}})).await;
    rolled_out(env).await;
    observer.reaches(env, 12).await;
    step("end");
}

/// One write of the timeline.
#[derive(Debug)]
struct Write<'a> {
    action: &'a str,
    kind: &'a str,
    name: &'a str,
    /// What changed, for updates.
    change: &'a str,
    /// The controller, and the key of the pass.
    origin: Option<(&'a str, &'a str)>,
}

/// Reads a line: seconds, revision, action, kind, name, writer, changes, origin in brackets.
fn write(line: &str) -> Option<Write<'_>> {
    let (line, origin) = match line.rsplit_once("  [") {
        Some((line, origin)) => (line, origin.strip_suffix(']')?.split_once(' ')),
        None => (line, None),
    };
    let rest = line.trim_start().split_once(" r")?.1;
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let (action, rest) = rest.split_once("  ")?;
    let (kind, rest) = rest.split_once(' ')?;
    let (name, change) = rest.split_once(": ").unwrap_or((rest, ""));
    let name = name.split("  by ").next()?;
    Some(Write { action, kind, name: name.strip_prefix("default/")?, change, origin })
}

/// The fields that listings show, by how their paths start.
const FIELDS: [&str; 8] = [
    "metadata.deletionTimestamp nothing",
    "spec.nodeName ",
    "spec.paused ",
    "spec.replicas ",
    "spec.template.",
    "status.availableReplicas ",
    "status.phase ",
    "status.replicas ",
];

/// The writes of a step that concern the Deployment, one line each: who, for which key, did what.
/// With `only`, just those of the user, those that change this field, and new ReplicaSets.
fn listing(timeline: &str, step: &str, only: Option<&str>) -> String {
    let start = format!("== {step}");
    let lines = timeline.lines().skip_while(|line| !line.ends_with(&start)).skip(1);
    let lines = lines.take_while(|line| !line.contains("  == "));
    let mut text = String::new();
    for Write { action, kind, name, change, origin } in lines.filter_map(write) {
        if !matches!(kind, "Deployment" | "ReplicaSet" | "Pod") {
            continue;
        }
        let fields = FIELDS.iter().filter_map(|field| {
            let found = change.split(", ").find(|change| change.starts_with(field))?;
            let path = found.split_once(' ')?.0;
            // Which time it is, and the parts of a template, would only make lines long.
            let is_long = path == "metadata.deletionTimestamp" || path.starts_with("spec.template");
            Some(if is_long { path } else { found })
        });
        let fields: Vec<&str> = fields.collect();
        let is_made = kind == "ReplicaSet" && action == "created";
        let is_shown =
            is_made || only.is_none_or(|only| fields.iter().any(|field| field.starts_with(only)));
        let is_news = action != "updated" || !fields.is_empty();
        if !is_news || origin.is_some() && !is_shown {
            continue;
        }
        let who = origin.map_or("kubectl".to_owned(), |(controller, key)| {
            format!("{controller} {}", key.trim_start_matches("default/"))
        });
        let change =
            if fields.is_empty() { String::new() } else { format!(": {}", fields.join(", ")) };
        text.push_str(&format!("{who:<46}  {action} {kind} {name}{change}\n"));
    }
    text
}

/// The page with each listing in place of the block after its mark.
fn page(timeline: &str) -> String {
    let mut page = String::new();
    let text = std::fs::read_to_string(PAGE).unwrap();
    let mut rest = &*text;
    while let Some((before, after)) = rest.split_once("<!-- writes of: ") {
        let (mark, after) = after.split_once(" -->\n```text\n").unwrap();
        let (_, after) = after.split_once("```\n").unwrap();
        let (step, only) = match mark.split_once(", only ") {
            Some((step, only)) => (step, Some(only)),
            None => (mark, None),
        };
        let listing = listing(timeline, step, only);
        assert!(!listing.is_empty(), "{mark} is a step with writes");
        page.push_str(&format!("{before}<!-- writes of: {mark} -->\n```text\n{listing}```\n"));
        rest = after;
    }
    page + rest
}

#[test]
fn deployment_lives_and_every_write_names_its_pass() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let env = TestEnv::builder()
            .simulated(7)
            .control_plane(|plane| plane.nodes(4).controllers("*".parse::<Selection>().unwrap()));
        let env = env.start().await.unwrap();
        let observer = Observer::new();
        tokio::select! {
            biased;
            () = observer.run(&env) => {}
            () = story(&env, &observer) => {}
        }
        let timeline = env.timeline().to_string();
        if std::env::var_os("SHOW_TIMELINE").is_some() {
            println!("{timeline}");
        }
        expect_file![std::path::absolute(PAGE).unwrap()].assert_eq(&page(&timeline));
        env.stop().await.unwrap();
    });
}
