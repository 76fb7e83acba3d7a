//! Processes are observed without a clock: each test's command holds a FIFO open, which closes when
//! the last process of the group ends.

use std::future::Future;

use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use wellspring_core::{Approval, CancellationToken};

use super::capture::{Capture, Decoder, Shown};
use super::*;
use crate::tools::test_host::{Heard, RecordingHost};

fn chunk(stream: &str, content: &str) -> Heard {
    Heard::progress(json!({"subtype": format!("{stream}_chunk"), "content": content}))
}

fn output(stdout: &str, stderr: &str, exit_code: i32) -> Result<ToolResult, String> {
    Ok(ToolResult::new(json!({"stdout": stdout, "stderr": stderr, "exit_code": exit_code})))
}

async fn run(shell: &Shell, arguments: Value) -> (Vec<Heard>, Result<ToolResult, String>) {
    RecordingHost::new().call(shell, arguments).await
}

/// A directory, a shell in it and the read end of the FIFO `alive` in it.
fn watched() -> (TempDir, Shell, pipe::Receiver) {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("alive");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let receiver = pipe::OpenOptions::new().open_receiver(&fifo).unwrap();
    let shell = Shell::below(directory.path()).unwrap();
    (directory, shell, receiver)
}

/// Resolves when no process holds the FIFO any more.
async fn all_gone(alive: &mut pipe::Receiver) {
    alive.read_to_end(&mut Vec::new()).await.unwrap();
}

/// Fails instead of hanging.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it takes too long")
}

#[test]
fn the_spec() {
    let shell = Shell::below(".").unwrap();
    let spec = shell.spec();
    assert_eq!(&*spec.name, "run_shell_command");
    assert_eq!((spec.kind, spec.mode), (ToolKind::Execute, ToolMode::Sequential));
    assert_eq!((spec.approval(), spec.idempotent), (Approval::Ask, false));
}

/// The time limit that the model sets applies; the engine's own limit for the call is longer.
#[test]
fn how_long_a_command_may_take() {
    let times = [
        (json!({"command": "make"}), COMMAND_SECONDS_DEFAULT),
        (json!({"command": "make", "timeout": 0}), 1),
        (json!({"command": "make", "timeout": 7}), 7),
        (json!({"command": "make", "timeout": u64::MAX}), COMMAND_SECONDS_MAX),
    ];
    for (arguments, seconds) in times {
        let arguments: Arguments = typed(arguments).unwrap();
        assert_eq!(arguments.time_max(), Duration::from_secs(seconds));
    }
    let waits = Shell::below(std::env::temp_dir()).unwrap().spec.timeouts;
    let longest = Some(Duration::from_secs(COMMAND_SECONDS_MAX) + STOP_GRACE);
    assert!(waits.idle > longest && waits.total > longest, "{waits:?}");
}

#[tokio::test]
async fn chunks_and_the_result() {
    let shell = Shell::below(".").unwrap();
    let (heard, result) = run(&shell, json!({"command": "echo out"})).await;
    assert_eq!((heard, result), (vec![chunk("stdout", "out\n")], output("out\n", "", 0)));
    let (heard, result) = run(&shell, json!({"command": "echo err >&2; exit 7"})).await;
    assert_eq!((heard, result), (vec![chunk("stderr", "err\n")], output("", "err\n", 7)));
    let (heard, result) = run(&shell, json!({"command": "kill -KILL $$"})).await;
    assert_eq!((heard, result), (vec![], output("", "", 137)));
}

#[tokio::test]
async fn input_is_closed_and_the_environment_is_small() {
    let shell = Shell::below(".").unwrap().variable("EXTRA", "yes");
    let command = "cat; env | cut -d= -f1 | grep -v '^\\(_\\|PWD\\|OLDPWD\\|SHLVL\\)$' | sort";
    let (_, result) = run(&shell, json!({"command": command})).await;
    let mut names: Vec<&str> =
        CHILD_ENVIRONMENT.into_iter().filter(|name| std::env::var_os(name).is_some()).collect();
    names.push("EXTRA");
    names.sort_unstable();
    assert_eq!(result, output(&(names.join("\n") + "\n"), "", 0));
    // Cargo sets this variable for every test.
    let command = json!({"command": "echo $CARGO_MANIFEST_DIR"});
    assert_eq!(run(&shell, command).await.1, output("\n", "", 0));
}

#[tokio::test]
async fn a_command_starts_below_the_root() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::write(root.join("file"), "").unwrap();
    std::os::unix::fs::symlink("/", root.join("out")).unwrap();
    let shell = Shell::below(&root).unwrap();
    let outside = "is outside the working directory; use a path below it";
    for (cwd, want) in [
        (".", Ok(root.clone())),
        ("a/b", Ok(root.join("a/b"))),
        ("a/..", Ok(root.clone())),
        ("..", Err(format!("\"..\" {outside}"))),
        ("/", Err(format!("\"/\" {outside}"))),
        ("out", Err(format!("\"out\" {outside}"))),
        ("file", Err("\"file\" is not a directory".to_owned())),
        (
            "nowhere",
            Err("cannot run a command in \"nowhere\": No such file or directory (os error 2)"
                .to_owned()),
        ),
    ] {
        let (_, result) = run(&shell, json!({"command": "pwd -P", "cwd": cwd})).await;
        let told = |path: PathBuf| output(&format!("{}\n", path.display()), "", 0);
        assert_eq!(result, want.and_then(told), "{cwd}");
    }
    assert!(Shell::below(root.join("nowhere")).is_err());
}

#[tokio::test]
async fn what_is_left_in_the_background_ends_with_the_command() {
    let (_directory, shell, mut alive) = watched();
    let command = "exec 9>alive; sleep 1000 & echo done";
    let (heard, result) = soon(run(&shell, json!({"command": command}))).await;
    assert_eq!((heard, result), (vec![chunk("stdout", "done\n")], output("done\n", "", 0)));
    soon(all_gone(&mut alive)).await;
}

#[tokio::test]
async fn cancelling_asks_the_whole_group_to_end() {
    let (_directory, shell, mut alive) = watched();
    let (host, signal) = (RecordingHost::new(), CancellationToken::new());
    let command = "exec 9>alive; trap 'echo bye; exit' TERM; sleep 1000 & echo hi; wait";
    let call = shell.call(json!({"command": command}), host.context_with(signal.clone()));
    let (result, ()) = soon(async {
        tokio::join!(call, async {
            host.until(1).await;
            signal.cancel();
        })
    })
    .await;
    let want = r#"killed on request; so far it wrote {"stdout":"hi\nbye\n","stderr":""}"#;
    assert_eq!(result.unwrap_err().to_string(), want);
    assert_eq!(host.heard(), [chunk("stdout", "hi\n")]);
    soon(all_gone(&mut alive)).await;
}

#[tokio::test]
async fn a_group_that_does_not_want_to_end_is_killed() {
    let (_directory, shell, mut alive) = watched();
    let shell = shell.grace(Duration::from_millis(20));
    let (host, signal) = (RecordingHost::new(), CancellationToken::new());
    let command =
        "exec 9>alive; trap '' TERM; (while :; do sleep 1000; done) & echo hi; wait; wait";
    let call = shell.call(json!({"command": command}), host.context_with(signal.clone()));
    let (result, ()) = soon(async {
        tokio::join!(call, async {
            host.until(1).await;
            signal.cancel();
        })
    })
    .await;
    let want = r#"killed on request; so far it wrote {"stdout":"hi\n","stderr":""}"#;
    assert_eq!(result.unwrap_err().to_string(), want);
    soon(all_gone(&mut alive)).await;
}

#[tokio::test]
async fn dropping_the_call_kills_the_group_and_reaps_the_leader() {
    let (_directory, shell, mut alive) = watched();
    let host = RecordingHost::new();
    let command = "exec 9>alive; trap '' TERM; sleep 1000 & echo $$; wait";
    let mut call = shell.call(json!({"command": command}), host.context());
    soon(async {
        tokio::select! {
            result = &mut call => panic!("{result:?}"),
            () = host.until(1) => {}
        }
    })
    .await;
    let leader = host.progress()[0]["content"].as_str().unwrap().trim().to_owned();
    let process = Path::new("/proc").join(&leader);
    assert!(process.exists());
    drop(call);
    soon(all_gone(&mut alive)).await;
    // A zombie process would still be here.
    soon(async {
        while process.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_call_does_not_start() {
    let (directory, shell, _) = watched();
    let signal = CancellationToken::new();
    signal.cancel();
    let context = RecordingHost::new().context_with(signal);
    let error = shell.call(json!({"command": "touch ran"}), context).await.unwrap_err();
    assert_eq!(error.to_string(), "not started: the call was cancelled before");
    assert!(!directory.path().join("ran").exists());
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed() {
    let (_directory, shell, mut alive) = watched();
    let command = "exec 9>alive; echo hi; sleep 1000";
    let (_, result) = soon(run(&shell, json!({"command": command, "timeout": 1}))).await;
    let want = r#"killed after 1 s; so far it wrote {"stdout":"hi\n","stderr":""}"#;
    assert_eq!(result, Err(want.to_owned()));
    soon(all_gone(&mut alive)).await;
}

#[tokio::test]
async fn endless_output_is_cut_in_the_middle() {
    let shell = Shell::below(".").unwrap();
    let command = "printf start; head -c 8388608 /dev/zero | tr '\\0' x; printf end";
    let (heard, result) = soon(run(&shell, json!({"command": command}))).await;
    let total = 8 * 1024 * 1024 + "startend".len();
    let (head, tail) = ("start".to_owned() + &"x".repeat(32_763), "x".repeat(32_765) + "end");
    let left_out = total - CAPTURE_BYTES_MAX;
    let want = format!("{head}\n[... {left_out} bytes left out ...]\n{tail}");
    assert_eq!(result, output(&want, "", 0));
    let shown: usize = heard
        .iter()
        .map(|heard| match heard {
            Heard::Updated(update) => {
                update.data.as_ref().unwrap()["content"].as_str().unwrap().len()
            }
            Heard::Stated(_) | Heard::Asked { .. } | Heard::CalledAgent { .. } => 0,
        })
        .sum();
    let most = usize::try_from(SHOWN_BYTES_MAX).unwrap() + 5 * 40;
    assert!(shown <= most && shown > most - 20_000, "{shown} bytes were shown");
}

#[test]
fn characters_may_be_cut_anywhere() {
    let text = "aé\u{FFFD}€🙂z";
    let bytes = text.as_bytes();
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            let mut decoder = Decoder::default();
            let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            let heard: String = pieces.map(|piece| decoder.push(piece)).concat();
            assert_eq!((heard.as_str(), decoder.finish()), (text, ""), "cut at {first}, {second}");
        }
    }
}

#[test]
fn what_is_no_text_is_replaced() {
    for (pieces, want) in [
        (&[&b"a\xFFb"[..]][..], "a\u{FFFD}b"),
        (&[b"a\xF0\x9F", b"b"], "a\u{FFFD}b"),
        (&[b"\xF0\x9F", b"\x99"], "\u{FFFD}"),
        (&[b"\xC3"], "\u{FFFD}"),
        (&[b"\x80\x80"], "\u{FFFD}\u{FFFD}"),
    ] {
        let mut decoder = Decoder::default();
        let mut heard: String = pieces.iter().map(|piece| decoder.push(piece)).collect();
        heard.push_str(decoder.finish());
        assert_eq!(heard, want);
        assert_eq!(decoder.finish(), "");
    }
}

#[test]
fn a_capture_keeps_head_and_tail_whatever_the_pieces() {
    let half = CAPTURE_BYTES_MAX / 2;
    let text: String = (0..60_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    let long = text.repeat(5);
    for size in [1, 7, 4096, half, 100_000, long.len()] {
        let mut capture = Capture::default();
        for piece in long.as_bytes().chunks(size) {
            capture.push(std::str::from_utf8(piece).unwrap());
        }
        let want = format!(
            "{}\n[... {} bytes left out ...]\n{}",
            &long[..half],
            long.len() - 2 * half,
            &long[long.len() - half..]
        );
        assert!(capture.text() == want, "in pieces of {size}");
    }
    let mut all = Capture::default();
    all.push(&text);
    assert!(all.text() == text, "what fits is whole");
}

#[test]
fn what_is_shown_has_a_maximum() {
    let piece = "x".repeat(1024 * 1024);
    let mut shown = Shown::default();
    let heard: Vec<usize> =
        (0..6).map(|_| shown.pass(piece.clone()).map_or(0, |text| text.len())).collect();
    let note = "[... 1048576 bytes not shown ...]\n".len();
    assert_eq!(heard, [1_048_576, 1_048_576, 1_048_576, 1_048_576, note, note]);
    assert_eq!(shown.pass("y".to_owned()), None);
}
