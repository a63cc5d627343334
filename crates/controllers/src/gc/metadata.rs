//! A source that keeps nothing of an object but what the collector needs.

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::{StreamExt, TryFutureExt, TryStreamExt};
use serde_json::{Map, Value, json};
use setpoint_informer::source::{
    ListPage, ListRequest, ListWatch, SourceError, WatchFrame, WatchRequest, WatchStream,
};
use setpoint_object::Skim;

/// Another source's objects, cut down to identity, owners, finalizers and deletion.
pub(super) struct MetadataSource<S>(pub(super) S);

impl<S: ListWatch> ListWatch for MetadataSource<S> {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        self.0
            .list(request)
            .map_ok(|mut page| {
                page.items = page.items.iter().map(cut).collect();
                page
            })
            .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        let cut_frame = |frame| match frame {
            WatchFrame::Added(object) => WatchFrame::Added(cut(&object)),
            WatchFrame::Modified(object) => WatchFrame::Modified(cut(&object)),
            WatchFrame::Deleted(object) => WatchFrame::Deleted(cut(&object)),
            other => other,
        };
        self.0.watch(request).map_ok(move |stream| stream.map_ok(cut_frame).boxed()).boxed()
    }

    fn can_stream_list(&self) -> bool {
        self.0.can_stream_list()
    }
}

/// The object without what is not needed; as it is when it cannot be read, so that the informer reports it.
fn cut(object: &Bytes) -> Bytes {
    let Ok(skim) = Skim::of(object) else { return object.clone() };
    let mut metadata = Map::new();
    let texts = [
        ("name", &skim.name),
        ("namespace", &skim.namespace),
        ("uid", &skim.uid),
        ("resourceVersion", &skim.resource_version),
        ("deletionTimestamp", &skim.deletion_timestamp),
    ];
    for (member, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        metadata.insert(member.to_owned(), Value::from(&**text));
    }
    if !skim.finalizers.is_empty() {
        metadata.insert(
            "finalizers".to_owned(),
            skim.finalizers.iter().map(|finalizer| &**finalizer).collect(),
        );
    }
    if !skim.owner_references.is_empty() {
        let owners = skim.owner_references.iter().map(|owner| {
            json!({
                "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
                "blockOwnerDeletion": owner.block_owner_deletion,
            })
        });
        metadata.insert("ownerReferences".to_owned(), owners.collect());
    }
    let mut cut = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
    // Items of a list may name no type; the informer fills it in.
    for (member, text) in [("apiVersion", &skim.api_version), ("kind", &skim.kind)] {
        if !text.is_empty() {
            cut.insert(member.to_owned(), Value::from(&**text));
        }
    }
    Value::Object(cut).to_string().into()
}
