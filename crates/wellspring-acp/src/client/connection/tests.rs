//! The limits of a connection, each reached once; the test is the other end.

use serde_json::json;

use super::*;

/// The agent's end of a connection.
struct Agent {
    say: mpsc::Sender<Heard>,
    heard: mpsc::Receiver<Vec<u8>>,
}

fn connect() -> (Connection, Agent) {
    let (out, heard) = mpsc::channel(LINES_WAITING_MAX);
    let (say, incoming) = mpsc::channel(LINES_WAITING_MAX);
    (
        Connection::new(Wire { out, incoming, tasks: Vec::new() }, None, Attending::default()),
        Agent { say, heard },
    )
}

fn update(session: &str, number: usize) -> Heard {
    let params = json!({"sessionId": session, "update": number});
    line(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}))
}

fn line(message: &Value) -> Heard {
    Heard::Line(message.to_string().into_bytes())
}

impl Agent {
    async fn say(&self, heard: Heard) {
        assert!(self.say.send(heard).await.is_ok(), "nobody listens");
    }

    /// The next message to the agent.
    async fn hear(&mut self) -> Value {
        serde_json::from_slice(&self.heard.recv().await.unwrap()).unwrap()
    }

    /// Sends until the other side stops reading, and returns the number of messages.
    async fn flood(&self, say: impl Fn(usize) -> Heard) -> usize {
        for number in 0.. {
            // Yields to the tasks that could make room, because there is one thread.
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
            if self.say.try_send(say(number)).is_err() {
                return number;
            }
        }
        unreachable!("it has no end")
    }

    /// Waits until all earlier messages are handled.
    async fn settled(&mut self, connection: &Connection) {
        let (asked, ()) = tokio::join!(connection.request("ping", json!({})), async {
            let id = self.hear().await["id"].clone();
            self.say(line(&json!({"jsonrpc": "2.0", "id": id, "result": 1}))).await;
        });
        assert_eq!(asked.unwrap(), json!(1));
    }
}

fn taken(queue: &mut Queue) -> Vec<usize> {
    let mut numbers = Vec::new();
    while let Some(Incoming::Update(number)) = queue.next_now() {
        numbers.push(usize::try_from(number.as_u64().unwrap()).unwrap());
    }
    numbers
}

#[tokio::test]
async fn a_full_queue_makes_the_agent_wait_and_loses_nothing() {
    let (connection, mut agent) = connect();
    let (route, mut queue) = Queue::new(None);
    queue.begin();
    connection.route("s", route);
    // The queue, the messages in front of it, and the one that is being put in.
    let said = agent.flood(|number| update("s", number)).await;
    assert_eq!(said, QUEUE_MAX + LINES_WAITING_MAX + 1);
    let mut got = Vec::new();
    while got.len() < said {
        let Some(Incoming::Update(number)) = queue.next().await else { unreachable!() };
        got.push(usize::try_from(number.as_u64().unwrap()).unwrap());
    }
    assert_eq!(got, (0..said).collect::<Vec<_>>());
    agent.settled(&connection).await;
}

#[tokio::test]
async fn a_queue_of_large_messages_makes_the_agent_wait_sooner() {
    let (connection, mut agent) = connect();
    let (route, mut queue) = Queue::new(None);
    queue.begin();
    connection.route("s", route);
    let large = "x".repeat(1024 * 1024);
    let message = |number: usize| {
        let params = json!({"sessionId": "s", "update": {"number": number, "text": large}});
        line(&json!({"method": "session/update", "params": params}))
    };
    // The queue's capacity, the messages in front of it, and the one that is being put in.
    let said = agent.flood(message).await;
    assert_eq!(said, QUEUE_BYTES_MAX / large.len() - 1 + LINES_WAITING_MAX + 2);
    for number in 0..said {
        let Some(Incoming::Update(update)) = queue.next().await else { unreachable!() };
        assert_eq!(update["number"], number);
    }
    agent.settled(&connection).await;
}

#[tokio::test]
async fn a_queue_that_nobody_reads_keeps_the_first_and_makes_nobody_wait() {
    let (connection, mut agent) = connect();
    let (route, mut queue) = Queue::new(None);
    queue.begin();
    connection.route("s", route);
    queue.rest();
    for number in 0..2 * QUEUE_MAX {
        agent.say(update("s", number)).await;
    }
    agent.settled(&connection).await;
    assert_eq!(taken(&mut queue), (0..QUEUE_MAX).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_said_before_a_session_is_known_is_kept_up_to_a_maximum() {
    let (connection, mut agent) = connect();
    let (route, mut queue) = Queue::new(None);
    queue.begin();
    let opened = async {
        let id = agent.hear().await["id"].clone();
        for number in 0..EARLY_MAX + 3 {
            agent.say(update("s", number)).await;
        }
        let result = json!({"sessionId": "s"});
        agent.say(line(&json!({"jsonrpc": "2.0", "id": id, "result": result}))).await;
    };
    let (answer, ()) = tokio::join!(connection.open("session/new", json!({}), route), opened);
    assert_eq!(answer.unwrap()["sessionId"], "s");
    assert_eq!(taken(&mut queue), (3..EARLY_MAX + 3).collect::<Vec<_>>());
}

#[tokio::test]
async fn sessions_that_are_over_are_remembered_up_to_a_maximum() {
    let (connection, mut agent) = connect();
    for number in 0..=GONE_MAX {
        connection.forget(&number.to_string());
    }
    assert_eq!(connection.shared.state().gone.len(), 1);
    // Notifications for an unknown session are dropped, and requests are refused.
    agent.say(update(&GONE_MAX.to_string(), 1)).await;
    let params = json!({"sessionId": GONE_MAX.to_string()});
    agent.say(line(&json!({"id": 9, "method": "fs/read_text_file", "params": params}))).await;
    assert_eq!(agent.hear().await["error"]["message"], "the run has finished");
    agent.settled(&connection).await;
    assert_eq!(connection.shared.state().early.len(), 0);
}

#[tokio::test]
async fn whoever_waits_hears_of_the_end_and_its_reason() {
    let (connection, mut agent) = connect();
    let (route, mut queue) = Queue::new(None);
    queue.begin();
    connection.route("s", route);
    connection.prompt("s", json!({"sessionId": "s"})).await.unwrap();
    agent.hear().await;
    let why = AcpError::Ended { status: None, last_words: "ouch".into() };
    let (asked, ()) = tokio::join!(connection.request("ping", json!({})), async {
        agent.hear().await;
        agent.say(update("s", 1)).await;
        agent.say(Heard::End(why.clone())).await;
    });
    assert_eq!(asked.unwrap_err().to_string(), why.to_string());
    assert_eq!(taken(&mut queue), [1]);
    assert!(queue.next().await.is_none());
    assert_eq!(connection.ended().unwrap().to_string(), why.to_string());
    let late = connection.request("ping", json!({})).await.unwrap_err();
    assert_eq!(late.to_string(), why.to_string());
}

/// Messages outside any session wait for the listeners, up to the capacity of a queue. The agent
/// does not wait.
#[tokio::test]
async fn what_is_about_no_session_waits_for_a_client() {
    let (out, heard) = mpsc::channel(LINES_WAITING_MAX);
    let (say, incoming) = mpsc::channel(LINES_WAITING_MAX);
    let attending = Attending::default();
    let wire = Wire { out, incoming, tasks: Vec::new() };
    let connection = Connection::new(wire, None, attending.clone());
    let mut agent = Agent { say, heard };
    let says = |number: usize| {
        line(&json!({"jsonrpc": "2.0", "method": "_says", "params": {"number": number}}))
    };
    // There is no listener.
    agent.say(says(0)).await;
    agent.settled(&connection).await;
    let (mut stays, leaves) = (attending.join(), attending.join());
    for number in 1..=QUEUE_MAX + 10 {
        agent.say(says(number)).await;
    }
    agent.settled(&connection).await;
    drop(leaves);
    for number in 1..=QUEUE_MAX {
        let Some(Wish::Notification(method, params)) = stays.next().await else { panic!() };
        assert_eq!((&*method, params), ("_says", json!({"number": number})));
    }
    // The remaining listener gets the request.
    let asks = json!({"jsonrpc": "2.0", "id": 7, "method": "_asks", "params": {}});
    agent.say(line(&asks)).await;
    let Some(Wish::Request(request)) = stays.next().await else { panic!() };
    request.give(Ok(json!("yes"))).await;
    assert_eq!(agent.hear().await["result"], "yes");
}

/// Messages that come too late for one run are delivered to the next; listeners get them at once.
#[tokio::test]
async fn what_comes_too_late_is_kept_up_to_a_maximum() {
    let (connection, mut agent) = connect();
    let heard: Arc<Mutex<Vec<Value>>> = Arc::default();
    let listener: Listener = {
        let heard = Arc::clone(&heard);
        Arc::new(move |update| heard.lock().unwrap().push(update.clone()))
    };
    let (route, mut queue) = Queue::new(Some(listener));
    queue.begin();
    connection.route("s", route);
    agent.say(update("s", 1)).await;
    let params = json!({"sessionId": "s"});
    agent.say(line(&json!({"id": 9, "method": "fs/read_text_file", "params": params}))).await;
    agent.settled(&connection).await;
    assert_eq!(*heard.lock().unwrap(), [0; 0]);
    queue.rest();
    assert_eq!(agent.hear().await["error"]["message"], "the run has finished");
    agent.say(update("s", 2)).await;
    agent.settled(&connection).await;
    assert_eq!(*heard.lock().unwrap(), [1, 2]);
    assert_eq!(taken(&mut queue), [1, 2]);
    for late in 0..2 {
        queue.begin();
        for number in 0..QUEUE_MAX {
            agent.say(update("s", late * QUEUE_MAX + number)).await;
        }
        agent.settled(&connection).await;
        queue.rest();
    }
    assert_eq!(taken(&mut queue), (QUEUE_MAX..2 * QUEUE_MAX).collect::<Vec<_>>());
    assert_eq!(queue.late_units, 0);
}
