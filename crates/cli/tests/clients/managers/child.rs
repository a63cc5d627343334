//! The program of the processes: one manager with one controller, which rewrites each object
//! repeatedly.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::Config;
use kube_client::api::Patch;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use setpoint::runtime::election::Timings;
use setpoint::runtime::{
    Action, BoxError, Context, Controller, ControllerState, ElectionOptions, Manager, ManagerError,
    Request, ShardOptions, Sharded, Watch, cancel_on_signal, fence::Fenced,
};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The full name of the test that is the process.
pub(crate) const TEST: &str = "managers::child::child";
/// The environment variable with its role.
pub(crate) const ROLE: &str = "SETPOINT_TEST_ROLE";
/// The exit status of a manager that lost the lead.
pub(crate) const LOST: i32 = 3;

/// Short, so that tests are fast, and long enough that a leader on a busy machine keeps it.
pub(crate) const LEASE: Duration = Duration::from_secs(8);
const RENEW: Duration = Duration::from_secs(6);
pub(crate) const RETRY: Duration = Duration::from_millis(400);

/// Duration of a pass before it writes. A process spends most of its time here, so it is usually
/// frozen in the middle of a pass, and hardly ever between the last check of the lease and the
/// system call that sends.
const PASS: Duration = Duration::from_millis(60);

/// The role of a process.
#[derive(Debug, Clone)]
pub(crate) struct Role {
    pub name: String,
    /// Whether it shares keys with others; otherwise it leads alone.
    pub is_sharded: bool,
}

impl Role {
    pub(crate) fn leading(name: &str) -> Self {
        Self { name: name.to_owned(), is_sharded: false }
    }

    pub(crate) fn sharing(name: &str) -> Self {
        Self { name: name.to_owned(), is_sharded: true }
    }

    /// The value of the environment variable.
    pub(crate) fn written(&self, kubeconfig: &Path, journal: &Path) -> String {
        json!({
            "name": self.name, "sharded": self.is_sharded, "kubeconfig": kubeconfig, "journal": journal,
        })
        .to_string()
    }
}

/// The file in which a process records its actions, one line each, written at once so that nothing
/// is lost with the process.
#[derive(Clone)]
struct Journal(Arc<File>);

impl Journal {
    fn record(&self, what: &str, key: &str) {
        let at = super::wall();
        (&*self.0).write_all(format!("{at} {what} {key}\n").as_bytes()).unwrap();
    }
}

/// A client for a kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// One pass: rewrites the object, and requeues it soon.
async fn pass(
    name: &str,
    journal: &Journal,
    request: &Request,
    context: &Context,
) -> Result<Action, BoxError> {
    let maps = context.client().api::<ConfigMap>();
    let Some(map) = maps.get(request)? else { return Ok(Action::await_change()) };
    let count = map.data.as_ref().and_then(|data| data.get("n")?.parse::<u64>().ok());
    let Some(count) = count else { return Ok(Action::await_change()) };
    tokio::time::sleep(PASS).await;
    let patch = Patch::Merge(json!({"data": {"by": name, "n": (count + 1).to_string()}}));
    match maps.patch(request, &patch).await {
        Ok(_) => Ok(Action::requeue_after(PASS)),
        Err(error) => {
            if Fenced::find(&error).is_some() {
                journal.record("fenced", &request.to_string());
            }
            Err(error.into())
        }
    }
}

/// Runs the manager; returns the exit status.
async fn live(role: serde_json::Value) -> i32 {
    let word = |name: &str| role[name].as_str().unwrap().to_owned();
    let path = PathBuf::from(word("journal"));
    let journal = Journal(Arc::new(File::options().append(true).open(path).unwrap()));
    let name: Arc<str> = word("name").into();
    let client = client(Path::new(&word("kubeconfig"))).await;
    let timings = Timings { lease: LEASE, renew: RENEW, retry: RETRY };
    let mut builder = Manager::builder(client).namespaces(["default"]).unwrap();
    if role["sharded"] == false {
        let options = ElectionOptions::new("managers")
            .identity(&*name)
            .namespace("default")
            .timings(timings)
            .release_on_stop(true);
        builder = builder.leader_election(options).unwrap();
    }
    let mut manager = builder.build();
    let reconcile = {
        let (name, journal) = (name.clone(), journal.clone());
        move |request: Request, context: Context| {
            let (name, journal) = (name.clone(), journal.clone());
            async move {
                let key = request.to_string();
                if !request.name.starts_with('m') {
                    return Ok(Action::await_change());
                }
                journal.record("begin", &key);
                let ended = pass(&name, &journal, &request, &context).await;
                journal.record("end", &key);
                ended
            }
        }
    };
    let mut controller =
        Controller::builder("rewrites").for_(Watch::<ConfigMap>::new()).concurrency(4);
    if role["sharded"] == true {
        let options = ShardOptions::new("managers", &*name).namespace("default").timings(timings);
        controller = controller.sharded(Sharded::new(options).unwrap());
    }
    let controller = controller.build(reconcile).unwrap();
    let mut state = manager.add(controller).unwrap().watch_state();
    let stop = CancellationToken::new();
    let warm = async {
        let is_warm =
            |state: &_| matches!(state, ControllerState::Standby | ControllerState::Running);
        if state.wait_for(is_warm).await.is_ok() {
            journal.record("warm", "");
        }
        std::future::pending::<std::convert::Infallible>().await
    };
    let ended = tokio::select! {
        ended = manager.run(stop.clone()) => ended,
        never = warm => match never {},
        Err(error) = cancel_on_signal(stop) => panic!("{error}"),
    };
    match ended {
        Ok(()) => 0,
        Err(error @ ManagerError::LeadershipLost { .. }) => {
            println!("{error}");
            LOST
        }
        Err(error) => {
            println!("{error:?}");
            1
        }
    }
}

/// Not a test, but the process that the tests start. Otherwise does nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let status = runtime.block_on(live(serde_json::from_str(&role).unwrap()));
    std::process::exit(status);
}
