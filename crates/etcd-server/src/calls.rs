//! The calls, and the state that they share.

use crate::grpc::{AnswerBody, Messages, Status, many, one};
use crate::keyspace::Keyspace;
use crate::proto::{
    CompactionRequest, DeleteRangeRequest, Empty, HeaderOnly, LeaseGrantRequest,
    LeaseGrantResponse, LeaseKeepAliveResponse, LeaseLeasesResponse, LeaseRequest, LeaseStatus,
    LeaseTimeToLiveResponse, Member, MemberListResponse, PutRequest, RangeRequest, ResponseHeader,
    StatusResponse, TxnRequest,
};
use crate::server::{Options, VERSION};
use crate::{txn, watch};
use bytes::Bytes;
use futures::Stream;
use http::Response;
use http_body::Body;
use parking_lot::Mutex;
use setpoint_grpc::frame;
use std::sync::Arc;
use tokio::sync::watch as channel;
use tokio::time::Instant;

/// The ids of the only member and of its cluster, as a real etcd of one member might have.
const MEMBER: u64 = 0x8e9e_05c5_2164_694d;
const CLUSTER: u64 = 0xcdf8_181e_3a8d_3a9a;
const TERM: u64 = 2;

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keys: Mutex<Keyspace>,
    revision: channel::Sender<i64>,
    /// Wakes the task that ends leases.
    pub(crate) leases_changed: tokio::sync::Notify,
    options: Options,
}

impl Shared {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        let keys = Keyspace::new(options.quota_bytes);
        let (revision, _) = channel::channel(keys.revision);
        let leases_changed = tokio::sync::Notify::new();
        Arc::new(Self { keys: Mutex::new(keys), revision, leases_changed, options })
    }

    pub(crate) fn header(&self, revision: i64) -> ResponseHeader {
        ResponseHeader { cluster_id: CLUSTER, member_id: MEMBER, revision, raft_term: TERM }
    }

    /// Shows when the revision or the compaction has changed.
    pub(crate) fn revisions(&self) -> channel::Receiver<i64> {
        self.revision.subscribe()
    }

    /// Changes the data and wakes the watches.
    pub(crate) fn change<T>(&self, step: impl FnOnce(&mut Keyspace) -> T) -> T {
        let mut keys = self.keys.lock();
        let before = (keys.revision, keys.compacted);
        let done = step(&mut keys);
        let (revision, compacted) = (keys.revision, keys.compacted);
        drop(keys);
        if before != (revision, compacted) {
            self.revision.send_replace(revision);
        }
        done
    }

    fn current_header(&self) -> Option<ResponseHeader> {
        let revision = self.keys.lock().revision;
        Some(self.header(revision))
    }
}

/// Answers a call.
pub(crate) async fn answer<B>(shared: Arc<Shared>, path: &str, body: B) -> Response<AnswerBody>
where
    B: Body<Data = Bytes, Error: Send> + Unpin + Send + 'static,
{
    // A transaction has its operations' messages around it.
    let bytes_max = shared.options.request_bytes_max.saturating_add(512 << 10);
    let requests = Messages::new(body, bytes_max);
    let answered = match path {
        "/etcdserverpb.Watch/Watch" => return many(watch::answers(shared, requests)),
        "/etcdserverpb.Lease/LeaseKeepAlive" => return many(keep_alive(shared, requests)),
        _ => unary(&shared, path, requests).await,
    };
    answered.unwrap_or_else(|status| status.answer())
}

async fn unary<B>(
    shared: &Shared,
    path: &str,
    mut requests: Messages<B>,
) -> Result<Response<AnswerBody>, Status>
where
    B: Body<Data = Bytes> + Unpin,
{
    /// The only message of the request.
    async fn message<M: prost::Message + Default, B: Body<Data = Bytes> + Unpin>(
        requests: &mut Messages<B>,
    ) -> Result<M, Status> {
        let message = requests.next().await?;
        message.ok_or_else(|| Status::invalid("grpc: the request has no message"))
    }
    let requests = &mut requests;
    let now = Instant::now();
    Ok(match path {
        "/etcdserverpb.KV/Range" => {
            let call: RangeRequest = message(requests).await?;
            txn::check_range(&call)?;
            let keys = shared.keys.lock();
            let mut answer = keys.range(&call)?;
            answer.header = Some(shared.header(keys.revision));
            drop(keys);
            one(&answer)
        }
        "/etcdserverpb.KV/Put" => {
            let call: PutRequest = message(requests).await?;
            check_size(shared, call.key.len() + call.value.len())?;
            one(&shared.change(|keys| put(shared, keys, &call))?)
        }
        "/etcdserverpb.KV/DeleteRange" => {
            let call: DeleteRangeRequest = message(requests).await?;
            if call.key.is_empty() {
                return Err(Status::empty_key());
            }
            one(&shared.change(|keys| {
                let mut answer = txn::delete_range(keys, &call);
                keys.revision += i64::from(answer.deleted > 0);
                answer.header = Some(shared.header(keys.revision));
                answer
            }))
        }
        "/etcdserverpb.KV/Txn" => {
            let call: TxnRequest = message(requests).await?;
            check_size(shared, prost::Message::encoded_len(&call))?;
            let ops_max = shared.options.txn_ops_max;
            one(&shared.change(|keys| {
                let mut answer = txn::apply(keys, &call, ops_max)?;
                answer.header = Some(shared.header(keys.revision));
                Ok::<_, Status>(answer)
            })?)
        }
        "/etcdserverpb.KV/Compact" => {
            let call: CompactionRequest = message(requests).await?;
            shared.change(|keys| keys.compact(call.revision))?;
            one(&HeaderOnly { header: shared.current_header() })
        }
        "/etcdserverpb.Lease/LeaseGrant" => {
            let call: LeaseGrantRequest = message(requests).await?;
            let (id, ttl) = shared.keys.lock().leases.grant(call.id, call.ttl, now)?;
            shared.leases_changed.notify_one();
            let header = shared.current_header();
            one(&LeaseGrantResponse { header, id, ttl, error: String::new() })
        }
        "/etcdserverpb.Lease/LeaseRevoke" | "/etcdserverpb.KV/LeaseRevoke" => {
            let call: LeaseRequest = message(requests).await?;
            shared.change(|keys| {
                let ended = keys.leases.revoke(call.id)?;
                keys.end_leases(vec![ended]);
                Ok::<_, Status>(())
            })?;
            one(&HeaderOnly { header: shared.current_header() })
        }
        "/etcdserverpb.Lease/LeaseTimeToLive" | "/etcdserverpb.KV/LeaseTimeToLive" => {
            let call: LeaseRequest = message(requests).await?;
            let remaining = shared.keys.lock().leases.remaining(call.id, now);
            let (header, id) = (shared.current_header(), call.id);
            one(&match remaining {
                None => LeaseTimeToLiveResponse { header, id, ttl: -1, ..Default::default() },
                Some(known) => LeaseTimeToLiveResponse {
                    header,
                    id,
                    ttl: known.ttl,
                    granted_ttl: known.granted,
                    keys: if call.keys { known.keys } else { Vec::new() },
                },
            })
        }
        "/etcdserverpb.Lease/LeaseLeases" | "/etcdserverpb.KV/LeaseLeases" => {
            let _: Empty = message(requests).await?;
            let ids: Vec<i64> = shared.keys.lock().leases.ids().collect();
            let leases = ids.into_iter().map(|id| LeaseStatus { id }).collect();
            one(&LeaseLeasesResponse { header: shared.current_header(), leases })
        }
        "/etcdserverpb.Maintenance/Status" => {
            let _: Empty = message(requests).await?;
            one(&status(shared))
        }
        "/etcdserverpb.Maintenance/Alarm" | "/etcdserverpb.Maintenance/Defragment" => {
            let _: Empty = message(requests).await?;
            one(&HeaderOnly { header: shared.current_header() })
        }
        "/etcdserverpb.Cluster/MemberList" => {
            let _: Empty = message(requests).await?;
            let member = Member {
                id: MEMBER,
                name: shared.options.name.clone(),
                peer_urls: Vec::new(),
                client_urls: shared.options.advertised.clone(),
            };
            one(&MemberListResponse { header: shared.current_header(), members: vec![member] })
        }
        other => return Err(Status::unimplemented(other)),
    })
}

fn check_size(shared: &Shared, n_bytes: usize) -> Result<(), Status> {
    match n_bytes > shared.options.request_bytes_max {
        true => Err(Status::too_large()),
        false => Ok(()),
    }
}

fn put(
    shared: &Shared,
    keys: &mut Keyspace,
    call: &PutRequest,
) -> Result<crate::proto::PutResponse, Status> {
    txn::check_put(call)?;
    keys.leases.check(call.lease)?;
    keys.check_space(call.key.len() + call.value.len())?;
    if (call.ignore_value || call.ignore_lease) && keys.get(&call.key).is_none() {
        return Err(Status::invalid("etcdserver: key not found"));
    }
    let mut answer = txn::put_one(keys, call);
    keys.revision += 1;
    answer.header = Some(shared.header(keys.revision));
    Ok(answer)
}

fn status(shared: &Shared) -> StatusResponse {
    let keys = shared.keys.lock();
    let size = i64::try_from(keys.n_bytes).unwrap_or(i64::MAX);
    let index = u64::try_from(keys.revision).unwrap_or(0);
    StatusResponse {
        header: Some(shared.header(keys.revision)),
        version: VERSION.to_owned(),
        db_size: size,
        leader: MEMBER,
        raft_index: index,
        raft_term: TERM,
        raft_applied_index: index,
        db_size_in_use: size,
    }
}

/// The answers of a keep-alive stream.
fn keep_alive<B>(
    shared: Arc<Shared>,
    requests: Messages<B>,
) -> impl Stream<Item = Result<Bytes, Status>> + Send + 'static
where
    B: Body<Data = Bytes, Error: Send> + Unpin + Send + 'static,
{
    futures::stream::unfold(Some((shared, requests)), async |state| {
        let (shared, mut requests) = state?;
        match requests.next::<LeaseRequest>().await {
            Ok(Some(call)) => {
                let ttl = shared.keys.lock().leases.keep_alive(call.id, Instant::now());
                let header = shared.current_header();
                let answer = LeaseKeepAliveResponse { header, id: call.id, ttl };
                Some((Ok(frame(&answer)), Some((shared, requests))))
            }
            Ok(None) => None,
            Err(status) => Some((Err(status), None)),
        }
    })
}
