use super::*;
use crate::connection::Protocol::{Http1, Http2};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_secs(900);

async fn overdue(timeouts: &Timeouts) -> (Overdue, Duration) {
    let begun = Instant::now();
    (timeouts.overdue().await, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn new_connection_must_send_its_first_head_mgr_23() {
    let limits = Limits::default();
    assert_eq!(overdue(&Timeouts::new(Http1, &limits)).await, (Overdue::Head, limits.head_max));
    assert_eq!(overdue(&Timeouts::new(Http2, &limits)).await, (Overdue::Head, limits.head_max));
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_overdue_after_its_idle_time_mgr_23() {
    let limits = Limits::default();
    for protocol in [Http1, Http2] {
        // A request in progress has no timeout; the idle time starts with its response.
        let timeouts = Timeouts::new(protocol, &limits);
        let answering = timeouts.request();
        assert!(timeout(LONG, timeouts.overdue()).await.is_err());
        drop(answering);
        assert_eq!(overdue(&timeouts).await, (Overdue::Request, limits.idle_max));
    }
}

#[tokio::test(start_paused = true)]
async fn head_of_a_request_has_its_own_timeout_mgr_23() {
    let limits = Limits::default();
    let (mut peer, end) = duplex(8);
    let timeouts = Timeouts::new(Http1, &limits);
    let mut end = timeouts.watch(end, &Turns::default());
    drop(timeouts.request());
    sleep(limits.idle_max / 2).await;
    peer.write_all(b"P").await.unwrap();
    assert_eq!(end.read_u8().await.unwrap(), b'P');
    assert_eq!(overdue(&timeouts).await, (Overdue::Head, limits.head_max));
    // After the head has arrived, its timeout no longer applies.
    let _answering = timeouts.request();
    assert!(timeout(LONG, timeouts.overdue()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn over_http2_only_the_complete_preface_and_then_requests_count() {
    let limits = Limits::default();
    let (mut peer, end) = duplex(1024);
    let timeouts = Timeouts::new(Http2, &limits);
    let mut end = timeouts.watch(end, &Turns::default());
    peer.write_all(&[0; 23]).await.unwrap();
    end.read_exact(&mut [0; 23]).await.unwrap();
    assert_eq!(overdue(&timeouts).await, (Overdue::Head, limits.head_max));
    peer.write_all(&[0; 1]).await.unwrap();
    end.read_u8().await.unwrap();
    drop(timeouts.request());
    let pings = async {
        for _ in 0..3 {
            sleep(limits.idle_max / 4).await;
            peer.write_all(&[0; 17]).await.unwrap();
            end.read_exact(&mut [0; 17]).await.unwrap();
            end.write_all(&[0; 17]).await.unwrap();
        }
    };
    let (late, ()) = tokio::join!(overdue(&timeouts), pings);
    assert_eq!(late, (Overdue::Request, limits.idle_max));

    // A connection that has sent no request yet gets the time of a head only.
    let limits = Limits { http2_idle_max: None, ..limits };
    let timeouts = Timeouts::new(Http2, &limits);
    timeouts.0.lock().has_read(24);
    assert_eq!(overdue(&timeouts).await, (Overdue::Request, limits.head_max));

    let timeouts = Timeouts::new(Http2, &limits);
    drop(timeouts.request());
    assert!(timeout(LONG, timeouts.overdue()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn peer_that_reads_nothing_times_out_and_a_slow_one_does_not() {
    let limits = Limits::default();
    let (mut slow, end) = duplex(8);
    let timeouts = Timeouts::new(Http1, &limits);
    let mut end = timeouts.watch(end, &Turns::default());
    // The response is complete but still being sent.
    drop(timeouts.request());
    let reading = async {
        for _ in 0..8 {
            sleep(STALL_MAX - Duration::from_secs(1)).await;
            slow.read_exact(&mut [0; 8]).await.unwrap();
        }
    };
    let writing = async { tokio::join!(end.write_all(&[0; 64]), reading).0 };
    tokio::select! {
        written = writing => written.unwrap(),
        overdue = timeouts.overdue() => panic!("{overdue:?}"),
    }
    // The last bytes were read last; the idle time starts there.
    assert!(timeouts.0.lock().idle_since.elapsed() < STALL_MAX);

    let stall = async {
        tokio::select! { _ = end.write_all(&[0; 64]) => None, late = overdue(&timeouts) => Some(late) }
    };
    assert_eq!(stall.await, Some((Overdue::Taking, STALL_MAX)));
    // Also while a request is in progress.
    let _answering = timeouts.request();
    assert_eq!(overdue(&timeouts).await, (Overdue::Taking, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn stall_in_another_task_is_seen() {
    let (_deaf, end) = duplex(8);
    let timeouts = Timeouts::new(Http1, &Limits::default());
    let mut end = timeouts.watch(end, &Turns::default());
    let _talking = timeouts.request();
    let mut tasks = tokio::task::JoinSet::new();
    let waiting = timeouts.clone();
    tasks.spawn(async move { overdue(&waiting).await });
    tokio::task::yield_now().await;
    assert!(timeout(LONG, end.write_all(&[0; 64])).await.is_err());
    let seen = tasks.join_next().await.unwrap().unwrap();
    assert_eq!(seen, (Overdue::Taking, STALL_MAX));
}

#[tokio::test(start_paused = true)]
async fn timeouts_follow_the_pace_of_the_servers_time() {
    let (_deaf, end) = duplex(8);
    let limits = Limits { pace: 10, ..Limits::default() };
    let timeouts = Timeouts::new(Http1, &limits);
    assert_eq!(overdue(&timeouts).await, (Overdue::Head, limits.head_max * 10));
    let mut end = timeouts.watch(end, &Turns::default());
    let _talking = timeouts.request();
    let stall = async {
        tokio::select! { _ = end.write_all(&[0; 64]) => None, late = overdue(&timeouts) => Some(late) }
    };
    assert_eq!(stall.await, Some((Overdue::Taking, STALL_MAX * 10)));
}
