//! A list at a revision and a watch from it give what a later list gives: for every selection and
//! version, paged or not, through bookmarks, ended watches, and conversions that take time.
use crate::conversion::serving_with;
use crate::definitions::DEFINITIONS;
use crate::server::Server;
use futures::StreamExt as _;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;
use setpoint_registry::request::VersionMatch;
use setpoint_registry::{EventKind, ListOptions, Verb, WatchStream};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// Long enough for conversions, shorter than the time between bookmarks.
const QUIET_PERIOD: Duration = Duration::from_secs(5);

/// One step of a history. Objects with an even number are in one namespace, others in another.
#[derive(Debug, Clone)]
enum Step {
    Write(Write),
    /// A reader lists in pages, with writes between them, and watches from there.
    List {
        selection: Selection,
        limit: i64,
        between: Vec<Write>,
    },
    /// A reader gets its first objects from the watch.
    Stream {
        selection: Selection,
    },
    /// A reader takes some events.
    Read {
        reader: Index,
        n: u8,
    },
    /// A reader's connection ends.
    Disconnect {
        reader: Index,
    },
    /// The definition changes, which ends every watch.
    Redefine,
    /// Time passes for bookmarks.
    Minute,
}
#[derive(Debug, Clone, Copy)]
struct Write {
    object: u8,
    /// `None`: removes it.
    size: Option<u8>,
}
#[derive(Debug, Clone, Copy)]
struct Selection {
    /// In the version that is converted.
    is_converted: bool,
    is_namespace: bool,
    filter: Filter,
}
#[derive(Debug, Clone, Copy)]
enum Filter {
    Nothing,
    Label,
    /// A label that the conversion adds.
    ConvertedLabel,
    Field,
    NotField,
}

impl Selection {
    fn path(self) -> &'static str {
        match (self.is_converted, self.is_namespace) {
            (false, false) => "/apis/ex.io/v1/foos",
            (false, true) => "/apis/ex.io/v1/namespaces/default/foos",
            (true, false) => "/apis/ex.io/v2/foos",
            (true, true) => "/apis/ex.io/v2/namespaces/default/foos",
        }
    }
    fn options(self) -> ListOptions {
        let field = if self.is_converted { "spec.length" } else { "spec.size" };
        let mut options = ListOptions { allow_bookmarks: true, ..ListOptions::default() };
        match self.filter {
            Filter::Nothing => {}
            Filter::Label => options.labels = Selector::parse("odd=1").unwrap(),
            Filter::ConvertedLabel => options.labels = Selector::parse("length=2").unwrap(),
            Filter::Field => {
                options.fields = FieldSelector::parse(&format!("{field}=2")).unwrap();
            }
            Filter::NotField => {
                options.fields = FieldSelector::parse(&format!("{field}!=2")).unwrap();
            }
        }
        options
    }
}

fn write() -> impl Strategy<Value = Write> {
    (0..6u8, proptest::option::weighted(0.75, 0..4u8))
        .prop_map(|(object, size)| Write { object, size })
}
fn selection() -> impl Strategy<Value = Selection> {
    let filter = prop_oneof![
        3 => Just(Filter::Nothing),
        1 => Just(Filter::Label),
        1 => Just(Filter::ConvertedLabel),
        1 => Just(Filter::Field),
        1 => Just(Filter::NotField),
    ];
    (any::<bool>(), any::<bool>(), filter).prop_map(|(is_converted, is_namespace, filter)| {
        Selection { is_converted, is_namespace, filter }
    })
}
fn step() -> impl Strategy<Value = Step> {
    let between = proptest::collection::vec(write(), 0..4);
    prop_oneof![
        8 => write().prop_map(Step::Write),
        3 => (selection(), 0..3i64, between)
            .prop_map(|(selection, limit, between)| Step::List { selection, limit, between }),
        2 => selection().prop_map(|selection| Step::Stream { selection }),
        3 => (any::<Index>(), 1..5u8).prop_map(|(reader, n)| Step::Read { reader, n }),
        2 => any::<Index>().prop_map(|reader| Step::Disconnect { reader }),
        1 => Just(Step::Redefine),
        1 => Just(Step::Minute),
    ]
}

/// Objects by namespace and name, as a client has them.
type State = BTreeMap<(String, String), Value>;

fn identity(object: &Value) -> (String, String) {
    let meta = |name: &str| object["metadata"][name].as_str().unwrap().to_owned();
    (meta("namespace"), meta("name"))
}

/// A client that lists once and then only watches.
struct Reader {
    selection: Selection,
    state: State,
    /// The version to resume from.
    version: u64,
    stream: Option<WatchStream>,
    /// It waits for the end of its first objects.
    is_filling: bool,
}

impl Reader {
    async fn watch(&self, server: &Server) -> WatchStream {
        let options = match self.is_filling {
            true => ListOptions {
                send_initial_events: Some(true),
                resource_version_match: Some(VersionMatch::NotOlderThan),
                ..self.selection.options()
            },
            false => ListOptions {
                resource_version: self.version.to_string(),
                ..self.selection.options()
            },
        };
        let request = server.request(Verb::Watch, self.selection.path());
        server.registry.watch(&request, &options).await.unwrap()
    }
    /// Takes an event, watching again if the stream has ended. `false`: there is none.
    async fn read(&mut self, server: &Server) -> bool {
        loop {
            let Some(stream) = &mut self.stream else {
                self.stream = Some(self.watch(server).await);
                continue;
            };
            match timeout(QUIET_PERIOD, stream.next()).await {
                Err(_) => return false,
                Ok(None) => {
                    // A watch that ends among its first objects starts over.
                    if self.is_filling {
                        self.state.clear();
                    }
                    self.stream = None;
                }
                // A view of converted objects has no history from before its first reader: a client
                // whose watch ended with an older view lists again.
                Ok(Some(Err(expired))) if self.selection.is_converted => {
                    assert_eq!(expired.code(), 410);
                    (self.state, self.version) = list(server, self.selection, 0, &[]).await;
                    self.stream = None;
                    return true;
                }
                Ok(Some(event)) => {
                    let event = event.unwrap();
                    let object = serde_json::from_slice(&event.object()).unwrap();
                    self.see(event.kind, event.revision, object);
                    return true;
                }
            }
        }
    }
    fn see(&mut self, kind: EventKind, revision: u64, object: Value) {
        assert_eq!(object["metadata"]["resourceVersion"], revision.to_string());
        if kind == EventKind::Bookmark {
            assert!(revision >= self.version, "a bookmark goes back");
            self.version = revision;
            self.is_filling = false;
            return;
        }
        if !self.is_filling {
            assert!(revision > self.version, "an event twice, or out of order");
            self.version = revision;
        }
        let before = match kind {
            EventKind::Deleted => self.state.remove(&identity(&object)),
            _ => self.state.insert(identity(&object), object.clone()),
        };
        assert_eq!(before.is_none(), kind == EventKind::Added, "{kind:?} of {object}");
    }
}

async fn carry_out(server: &Server, write: Write) {
    let Write { object, size } = write;
    let namespace = if object % 2 == 0 { "default" } else { "other" };
    let collection = format!("/apis/ex.io/v1/namespaces/{namespace}/foos");
    let path = format!("{collection}/foo-{object}");
    let Some(size) = size else {
        let _ = server.delete(&path).await;
        return;
    };
    let labels = json!({"odd": (size % 2).to_string()});
    let change = json!({"metadata": {"labels": labels}, "spec": {"size": size}});
    if server.patch(&path, change.clone()).await.is_err() {
        let mut whole = change;
        whole["apiVersion"] = "ex.io/v1".into();
        whole["kind"] = "Foo".into();
        whole["metadata"]["name"] = format!("foo-{object}").into();
        server.create(&collection, whole).await.unwrap();
    }
}

/// All pages of a list, with writes between them, and their revision.
async fn list(
    server: &Server,
    selection: Selection,
    limit: i64,
    between: &[Write],
) -> (State, u64) {
    let (mut state, mut revision, mut between) = (State::new(), None, between.iter());
    let mut options = ListOptions { limit, ..selection.options() };
    loop {
        let request = server.request(Verb::List, selection.path());
        let page = server.registry.list(&request, &options).await.unwrap();
        assert_eq!(*revision.get_or_insert(page.revision), page.revision, "pages of one state");
        for item in &page.items {
            let object: Value = serde_json::from_slice(&item.bytes()).unwrap();
            let last = state.last_key_value().map(|(identity, _)| identity.clone());
            assert!(last < Some(identity(&object)), "the order of the keys, each once");
            state.insert(identity(&object), object);
        }
        if page.continue_token.is_empty() {
            return (state, page.revision);
        }
        options.continue_token = page.continue_token;
        if let Some(write) = between.next() {
            carry_out(server, *write).await;
        }
    }
}

async fn run(steps: Vec<Step>) {
    let (server, converter) = serving_with(|builder| builder).await;
    let other = json!({"metadata": {"name": "other"}});
    server.create("/api/v1/namespaces", other).await.unwrap();
    let mut readers: Vec<Reader> = Vec::new();
    for (n, step) in steps.into_iter().enumerate() {
        match step {
            Step::Write(write) => carry_out(&server, write).await,
            Step::List { selection, limit, between } => {
                let (state, version) = list(&server, selection, limit, &between).await;
                let (stream, is_filling) = (None, false);
                readers.push(Reader { selection, state, version, stream, is_filling });
            }
            Step::Stream { selection } => {
                let (state, version, stream, is_filling) = (State::new(), 0, None, true);
                let mut reader = Reader { selection, state, version, stream, is_filling };
                while reader.is_filling {
                    assert!(reader.read(&server).await, "the bookmark that ends the first objects");
                }
                readers.push(reader);
            }
            Step::Read { reader, n } if !readers.is_empty() => {
                let reader = reader.get_mut(&mut readers);
                for _ in 0..n {
                    reader.read(&server).await;
                }
            }
            Step::Disconnect { reader } if !readers.is_empty() => {
                reader.get_mut(&mut readers).stream = None;
            }
            Step::Redefine => {
                let path = format!("{DEFINITIONS}/foos.ex.io");
                let short = json!({"spec": {"names": {"shortNames": [format!("f{n}")]}}});
                server.patch(&path, short).await.unwrap();
            }
            Step::Minute => tokio::time::sleep(Duration::from_secs(61)).await,
            Step::Read { .. } | Step::Disconnect { .. } => {}
        }
    }
    for reader in &mut readers {
        let (expected, revision) = list(&server, reader.selection, 0, &[]).await;
        while reader.read(&server).await {}
        assert_eq!(reader.state, expected, "{:?} at {revision}", reader.selection);
        let (in_pages, _) = list(&server, reader.selection, 2, &[]).await;
        assert_eq!(in_pages, expected);
    }
    drop((readers, converter));
    server.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn list_and_watch_give_what_a_later_list_gives(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(steps));
    }
}
