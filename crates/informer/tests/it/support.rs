//! Helpers of the tests.
use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use setpoint_informer::source::scripted::{Answer, Asked, Script, Step};
use setpoint_informer::source::{ListPage, WatchFrame};
use setpoint_informer::{
    Event, HandlerOptions, HandlerRegistration, SharedInformer, SharedInformerBuilder, SourceError,
};
use setpoint_object::{ApiError, Reason};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// An item of a built-in list: no `apiVersion`, no `kind`.
pub(crate) fn item(name: &str, version: u64) -> Bytes {
    Bytes::from(format!(
        r#"{{"metadata":{{"namespace":"ns","name":"{name}","uid":"u-{name}","resourceVersion":"{version}"}},"data":{{"v":"{version}"}}}}"#
    ))
}

fn whole(name: &str, version: u64) -> Bytes {
    let item = item(name, version);
    let rest = std::str::from_utf8(&item[1..]).unwrap();
    Bytes::from(format!(r#"{{"kind":"ConfigMap","apiVersion":"v1",{rest}"#))
}

pub(crate) fn added(name: &str, version: u64) -> Step {
    Step::Frame(WatchFrame::Added(whole(name, version)))
}

pub(crate) fn modified(name: &str, version: u64) -> Step {
    Step::Frame(WatchFrame::Modified(whole(name, version)))
}

pub(crate) fn deleted(name: &str, version: u64) -> Step {
    Step::Frame(WatchFrame::Deleted(whole(name, version)))
}

pub(crate) fn bookmark(version: u64) -> Step {
    Step::Frame(WatchFrame::Bookmark(Bytes::from(format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}}}}"#
    ))))
}

/// The bookmark that ends the initial events.
pub(crate) fn marker(version: u64) -> Step {
    Step::Frame(WatchFrame::Bookmark(Bytes::from(format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}"#
    ))))
}

pub(crate) fn wait(seconds: u64) -> Step {
    Step::Wait(Duration::from_secs(seconds))
}

pub(crate) fn fails(error: SourceError) -> Step {
    match error {
        SourceError::Api(error) => Step::Frame(WatchFrame::Error(error)),
        error => Step::Break(error),
    }
}

pub(crate) fn page(version: &str, items: &[(&str, u64)]) -> Answer {
    let items = items.iter().map(|(name, version)| item(name, *version)).collect();
    Answer::List(Ok(ListPage::new(version, items)))
}

pub(crate) fn page_continued(version: &str, items: &[(&str, u64)], token: &str) -> Answer {
    let Answer::List(Ok(page)) = page(version, items) else { unreachable!() };
    Answer::List(Ok(page.continued(token)))
}

pub(crate) fn no_list(error: SourceError) -> Answer {
    Answer::List(Err(error))
}

pub(crate) fn expired() -> SourceError {
    ApiError::expired("too old resource version").into()
}

pub(crate) fn too_large() -> SourceError {
    ApiError::too_large_resource_version(9, 5).into()
}

pub(crate) fn refused() -> SourceError {
    SourceError::Refused(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)))
}

pub(crate) fn lost() -> SourceError {
    SourceError::Transport("connection reset by peer".into())
}

pub(crate) fn busy() -> SourceError {
    ApiError::new(429, Reason::TooManyRequests, "busy").into()
}

pub(crate) fn internal() -> SourceError {
    ApiError::internal("oops").into()
}

pub(crate) fn missing() -> SourceError {
    ApiError::no_route().into()
}

/// The requests as short texts: `list rv limit token`, `watch rv`, `stream rv`.
pub(crate) fn asked(script: &Script) -> Vec<String> {
    script
        .asked()
        .iter()
        .map(|asked| match asked {
            Asked::List(_, list) => {
                let limit = list.limit.map(|limit| format!(" limit={limit}")).unwrap_or_default();
                let token = list
                    .continue_token
                    .iter()
                    .map(|token| format!(" after={token}"))
                    .collect::<String>();
                format!("list {:?}{limit}{token}", list.resource_version)
            }
            Asked::Watch(_, watch) => {
                let verb = if watch.send_initial_events { "stream" } else { "watch" };
                format!("{verb} {:?}", watch.resource_version)
            }
            other => format!("{other:?}"),
        })
        .collect()
}

/// A watch that sends one frame after a while and is then closed.
pub(crate) fn long_watch(version: u64) -> Answer {
    Answer::Watch(vec![wait(2), bookmark(version)])
}

/// The time of each request, in seconds since `start`.
pub(crate) fn asked_at(script: &Script, start: Instant) -> Vec<f64> {
    script
        .asked()
        .iter()
        .map(|asked| match asked {
            Asked::List(at, _) | Asked::Watch(at, _) => (*at - start).as_secs_f64(),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// A running informer, with its script and tasks.
pub(crate) struct Running {
    pub(crate) informer: SharedInformer<ConfigMap>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<()>,
}

pub(crate) fn builder(script: &Script) -> SharedInformerBuilder<ConfigMap> {
    SharedInformer::builder(script.clone()).seed(0)
}

impl Running {
    pub(crate) fn start(builder: SharedInformerBuilder<ConfigMap>) -> Self {
        Self::start_with(builder, |_| ())
    }

    /// Starts an informer after a call of `before`.
    pub(crate) fn start_with(
        builder: SharedInformerBuilder<ConfigMap>,
        before: impl FnOnce(&SharedInformer<ConfigMap>),
    ) -> Self {
        let (informer, worker) = builder.build();
        before(&informer);
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(worker.run(stop.clone()));
        Self { informer, stop, tasks }
    }

    /// The cache: `name@version` of each object.
    pub(crate) fn cache(&self) -> Vec<String> {
        self.informer.lister().snapshot().iter().map(|object| format!("{object:?}")).collect()
    }

    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

/// Runs all ready tasks.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// A handler's log: `+a@1!` (initial), `+a@1`, `a@1>a@2`, `-a@2`, `-a@2?` (missed).
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, informer: &SharedInformer<ConfigMap>) -> HandlerRegistration {
        self.add_with(informer, HandlerOptions::default())
    }

    pub(crate) fn add_with(
        &self,
        informer: &SharedInformer<ConfigMap>,
        options: HandlerOptions,
    ) -> HandlerRegistration {
        let log = self.clone();
        informer.add_handler(move |event: Event<ConfigMap>| log.write(&event), options).unwrap()
    }

    pub(crate) fn write(&self, event: &Event<ConfigMap>) {
        self.0.lock().push(show(event));
    }

    /// Returns the lines since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

fn show(event: &Event<ConfigMap>) -> String {
    use setpoint_informer::Tombstone;
    let line = match event {
        Event::Added { object, in_initial_list } => {
            format!("+{object:?}{}", if *in_initial_list { "!" } else { "" })
        }
        Event::Updated { old, new } => format!("{old:?}>{new:?}"),
        Event::Deleted { tombstone: Tombstone::Final(object) } => format!("-{object:?}"),
        Event::Deleted { tombstone: Tombstone::Missed { key, last_known } } => match last_known {
            Some(object) => format!("-{object:?}?"),
            None => format!("-{key}?"),
        },
        other => format!("{other:?}"),
    };
    line.replace("ns/", "")
}
