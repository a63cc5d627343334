use super::*;

#[tokio::test]
async fn streams_carry_data_both_ways_and_end_with_a_flag() {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    client.write_all(&frame::open(1, "kind", "echo", true)).await.unwrap();
    client.write_all(&frame::data(1, b"hello", true)).await.unwrap();
    client.write_all(&[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 7]).await.unwrap();
    let served = run(server, async |mut streams: Streams| {
        let mut stream = streams.recv().await.unwrap();
        assert_eq!(stream.header("kind"), "echo");
        let mut text = Vec::new();
        stream.io.read_to_end(&mut text).await.unwrap();
        // The frames are received in order, so the ping has an answer by then.
        stream.io.write_all(&text).await.unwrap();
    });
    served.await.unwrap();
    let mut sent = Vec::new();
    client.read_to_end(&mut sent).await.unwrap();
    let reply = frame::reply(1, false);
    assert!(sent.starts_with(&reply));
    let rest = &sent[reply.len()..];
    let echo = [frame::data(1, b"hello", false), frame::data(1, b"", true)].concat();
    assert!(rest.windows(echo.len()).any(|window| window == echo), "{rest:?}");
}

#[tokio::test]
async fn the_end_of_the_client_ends_the_session() {
    let (client, server) = tokio::io::duplex(1 << 10);
    drop(client);
    run(server, async |_streams: Streams| std::future::pending().await).await.unwrap();
}

#[tokio::test]
async fn other_versions_are_errors() {
    let (mut client, server) = tokio::io::duplex(1 << 10);
    client.write_all(&[0x80, 2, 0, 1, 0, 0, 0, 0]).await.unwrap();
    let ended = run(server, async |_streams: Streams| std::future::pending().await).await;
    assert!(ended.is_err());
}

#[tokio::test]
async fn a_client_opens_streams_that_a_server_reads_and_answers() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let serve = run(far, async |mut streams: Streams| {
        for kind in ["error", "stdin"] {
            let mut stream = streams.recv().await.unwrap();
            assert_eq!(stream.header("streamtype"), kind);
            let mut text = Vec::new();
            if kind == "stdin" {
                stream.io.read_to_end(&mut text).await.unwrap();
            }
            stream.io.write_all(format!("{kind} {}", text.len()).as_bytes()).await.unwrap();
        }
    });
    let ask = run_client(near, &["error", "stdin"], async |opened: Vec<DuplexStream>| {
        let [mut error, mut stdin] = opened.try_into().unwrap();
        stdin.write_all(b"input").await.unwrap();
        stdin.shutdown().await.unwrap();
        let (mut first, mut second) = (String::new(), String::new());
        error.read_to_string(&mut first).await.unwrap();
        stdin.read_to_string(&mut second).await.unwrap();
        assert_eq!([first, second], ["error 0", "stdin 5"]);
    });
    let (served, asked) = tokio::join!(serve, ask);
    served.unwrap();
    asked.unwrap();
}

#[tokio::test]
async fn the_answer_to_a_long_ping_is_short() {
    let mut ping = vec![0x80, 3, 0, 6, 0, 0x0f, 0xff, 0xff];
    ping.extend([0xff, 0, 0, 7].iter().cycle().take(0x0f_ffff));
    let read = read_frame(&mut &*ping).await.unwrap();
    let answer = vec![0x80, 3, 0, 6, 0, 0, 0, 4, 0xff, 0, 0, 7];
    assert_eq!(read, Some(Frame::Ping(answer)));
}
