//! A damaged file: the damage is reported everywhere, and everything else is served.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};

use serde_json::Value;

use crate::kit::Home;
use crate::serve::{answer, serving};

/// Flips a bit in the first record of the run with this input.
fn damage(home: &Home, asked: &str) {
    let path = home.data().join("runs.db");
    let mut file = std::fs::read(&path).unwrap();
    let find = |what: &[u8], from: usize| {
        file[from..].windows(what.len()).position(|window| window == what).map(|at| from + at)
    };
    let mut from = 0;
    let at = loop {
        let at = find(asked.as_bytes(), from).unwrap();
        if find(b"run_started", at.saturating_sub(400)).is_some_and(|started| started < at) {
            break at;
        }
        from = at + 1;
    };
    file[at] ^= 1;
    std::fs::write(path, file).unwrap();
}

fn said(output: &Output) -> String {
    let Output { stdout, stderr, .. } = output;
    String::from_utf8_lossy(stdout).into_owned() + &String::from_utf8_lossy(stderr)
}

#[test]
fn what_is_damaged_is_named_and_everything_else_is_served() {
    let home = Home::new();
    for asked in ["the first question", "the second question", "the third question"] {
        home.print(&["run", asked]);
    }
    let listed: Value = serde_json::from_str(&home.print(&["runs", "list", "--json"])).unwrap();
    let ids: Vec<String> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["run"]["run"].as_str().unwrap().to_owned())
        .collect();
    let [whole, damaged, _] = &ids[..] else { panic!("{ids:?}") };
    assert_eq!(home.print(&["store", "check"]), "everything is whole\n");
    let before = home.print(&["runs", "export", whole]);
    damage(&home, "the second question");

    let checked = home.output(&["store", "check", "--json"]);
    assert_eq!(checked.status.code(), Some(1), "{}", said(&checked));
    let report: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let named: Vec<_> = report["damage"].as_array().unwrap().iter().map(|it| &it["run"]).collect();
    assert!(named.contains(&&Value::from(damaged.as_str())), "{report}");
    assert!(!named.contains(&&Value::from(whole.as_str())), "{report}");
    let checked = home.output(&["store", "check"]);
    assert!(said(&checked).contains(&format!("run {damaged}: record 1")), "{}", said(&checked));
    let copy = home.work().join("copy.db");
    for arguments in [vec!["doctor"], vec!["backup", copy.to_str().unwrap()]] {
        let output = home.output(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(damaged), "{arguments:?}: {}", said(&output));
    }
    assert!(copy.exists());
    let exported = home.output(&["runs", "export", damaged]);
    assert!(!exported.status.success() && said(&exported).contains("is damaged at record 1"));
    assert_eq!(home.print(&["runs", "export", whole]), before);

    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let command: Command = home.paced(0, &["serve", "--listen", &address.to_string()]);
    let mut server = serving(command, address);
    for path in ["/export", "/events?dialect=ag_ui", "/events?dialect=record"] {
        let path = format!("/v1/runs/{damaged}{path}");
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        // It ends: nothing spins, and nothing waits for records that never arrive.
        socket.read_to_string(&mut text).unwrap();
        assert!(text.contains("damaged"), "{path}: {text}");
        assert!(!text.contains("question"), "{path}: {text}");
    }
    assert_eq!(answer(address, "GET", &format!("/v1/runs/{whole}"), "", "").0, 200);
    assert_eq!(answer(address, "GET", "/v1/runs", "", "").0, 200);
    let (status, run) = answer(address, "POST", "/v1/runs", "", r#"{"agent":"demo","input":"x"}"#);
    assert_eq!(status, 201, "{run}");
    server.kill().unwrap();
    server.wait().unwrap();

    home.print(&["store", "delete", damaged]);
    let checked = home.output(&["store", "check"]);
    assert!(!said(&checked).contains(damaged), "{}", said(&checked));
}

/// A data directory that is deleted under a server: new runs are refused, the server is not ready,
/// and no command makes a new, empty store in its place without saying so.
#[test]
fn a_deleted_data_directory_is_said() {
    let home = Home::new();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let command: Command = home.paced(0, &["serve", "--listen", &address.to_string()]);
    let mut server = serving(command, address);
    assert_eq!(answer(address, "GET", "/readyz", "", "").0, 200);
    std::fs::remove_dir_all(home.data()).unwrap();
    assert_eq!(answer(address, "GET", "/readyz", "", "").0, 503);
    let (status, told) = answer(address, "POST", "/v1/runs", "", r#"{"agent":"demo","input":"x"}"#);
    assert_eq!(status, 503, "{told}");
    let listed = home.output(&["runs", "list"]);
    assert!(said(&listed).contains("there is nothing in"), "{}", said(&listed));
    let copy = home.work().join("copy.db");
    let copied = home.output(&["backup", copy.to_str().unwrap()]);
    assert!(!copied.status.success() && !copy.exists(), "{}", said(&copied));
    assert!(!home.data().join("runs.db").exists());
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A server whose disk is full from the start serves stored runs, and reports that it cannot write.
#[cfg(target_os = "linux")]
#[test]
fn a_server_that_cannot_write_serves_what_is_there() {
    let home = Home::new();
    home.print(&["run", "the first question"]);
    let listed: Value = serde_json::from_str(&home.print(&["runs", "list", "--json"])).unwrap();
    let run = listed[0]["run"]["run"].as_str().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // No file may grow, as on a full disk.
    let mut command = Command::new("sh");
    let limited = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    command.args(["-c", limited, crate::kit::BINARY, "serve", "--listen", &address.to_string()]);
    home.settle(&mut command, 0);
    let mut server = serving(command, address);
    assert_eq!(answer(address, "GET", "/v1/runs", "", "").0, 200);
    let (status, shown) = answer(address, "GET", &format!("/v1/runs/{run}"), "", "");
    assert_eq!(status, 200, "{shown}");
    assert_eq!(answer(address, "GET", "/readyz", "", "").0, 503);
    assert_eq!(answer(address, "POST", "/v1/runs", "", r#"{"agent":"demo","input":"x"}"#).0, 503);
    server.kill().unwrap();
    server.wait().unwrap();
}
