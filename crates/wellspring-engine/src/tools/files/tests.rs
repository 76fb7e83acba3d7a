use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use tempfile::TempDir;
use wellspring_core::{Location, Tool as _, ToolResult, ToolUpdate};

use super::*;
use crate::tools::test_host::{Heard, RecordingHost};

/// `root` with some files, and a file outside of it that must not be readable.
fn tree() -> (TempDir, Files) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("src/deep")).unwrap();
    fs::write(directory.path().join("secret"), "secret\n").unwrap();
    fs::write(root.join("a.txt"), "one\ntwo\nthree\n").unwrap();
    fs::write(root.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(root.join("src/deep/lib.rs"), "// two\nfn two() {}\n").unwrap();
    fs::write(root.join("src/picture"), b"two\0\x01").unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("a.txt", root.join("in")).unwrap();
    let files = Files::below(&root).unwrap();
    (directory, files)
}

async fn call(tool: &FunctionTool, arguments: Value) -> Result<Value, String> {
    let (_, result) = RecordingHost::new().call(tool, arguments).await;
    result.map(|result| result.output)
}

#[tokio::test]
async fn reading_says_where_it_looks_and_what_is_there() {
    let (_directory, files) = tree();
    let arguments = json!({"path": "a.txt", "offset": 2, "limit": 1});
    let (heard, result) = RecordingHost::new().call(&files.read_file(), arguments).await;
    let locations = vec![Location { path: "a.txt".into(), line: Some(2) }];
    assert_eq!(heard, [Heard::Updated(ToolUpdate { locations, ..ToolUpdate::default() })]);
    let want = json!({"content": "two\n", "total_lines": 3, "next_offset": 3});
    assert_eq!(result, Ok(ToolResult::new(want)));
}

#[tokio::test]
async fn parts_of_a_file() {
    let (directory, files) = tree();
    let whole = json!({"content": "one\ntwo\nthree\n", "total_lines": 3});
    let full_path = directory.path().canonicalize().unwrap().join("root/a.txt");
    fs::write(directory.path().join("root/empty"), "").unwrap();
    for (arguments, want) in [
        (json!({"path": "a.txt"}), Ok(whole.clone())),
        (json!({"path": "./src/../a.txt"}), Ok(whole.clone())),
        (json!({"path": "in"}), Ok(whole.clone())),
        (json!({"path": full_path}), Ok(whole)),
        (
            json!({"path": "a.txt", "offset": 3}),
            Ok(json!({"content": "three\n", "total_lines": 3})),
        ),
        (json!({"path": "empty"}), Ok(json!({"content": "", "total_lines": 0}))),
        (json!({"path": "a.txt", "offset": 4}), Err("there is no line 4: the file has 3")),
        (json!({"path": "b.txt"}), Err("there is no b.txt")),
        (json!({"path": "src"}), Err("src is not a file; list_files lists directories")),
        (json!({"path": "src/picture"}), Err("src/picture is not a text file")),
    ] {
        let result = call(&files.read_file(), arguments.clone()).await;
        assert_eq!(result, want.map_err(str::to_owned), "{arguments}");
    }
}

#[tokio::test]
async fn no_path_leads_out() {
    let (directory, files) = tree();
    let outside = directory.path().join("secret");
    let outside = outside.to_str().unwrap();
    for path in ["../secret", "out", "up/secret", "src/../../secret", outside, "/etc/passwd"] {
        let want = Err(format!("{path} leads out of the directory; use a path below it"));
        assert_eq!(call(&files.read_file(), json!({"path": path})).await, want);
        let arguments = json!({"pattern": "secret", "path": path});
        assert_eq!(call(&files.search_files(), arguments).await, want);
    }
    for path in ["..", "up", "src/../..", "/"] {
        let want = Err(format!("{path} leads out of the directory; use a path below it"));
        assert_eq!(call(&files.list_files(), json!({"path": path})).await, want);
        let arguments = json!({"pattern": "secret", "path": path});
        assert_eq!(call(&files.search_files(), arguments).await, want);
    }
    let everywhere = call(&files.search_files(), json!({"pattern": "secret"})).await.unwrap();
    assert_eq!(everywhere["matches"], json!([]));
}

#[tokio::test]
async fn what_is_read_has_a_maximum() {
    let (directory, files) = tree();
    let root = directory.path().join("root");
    let line = "x".repeat(1023) + "\n";
    fs::write(root.join("lines"), line.repeat(65)).unwrap();
    fs::write(root.join("line"), "é".repeat(READ_BYTES_MAX)).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(READ_FILE_BYTES_MAX + 1).unwrap();
    let read = files.read_file();
    assert_eq!(
        call(&read, json!({"path": "lines"})).await,
        Ok(json!({"content": line.repeat(64), "total_lines": 65, "next_offset": 65}))
    );
    assert_eq!(
        call(&read, json!({"path": "line"})).await,
        Ok(json!({
            "content": "é".repeat(READ_BYTES_MAX / 2),
            "total_lines": 1,
            "line_cut_by_bytes": READ_BYTES_MAX
        }))
    );
    assert_eq!(
        call(&read, json!({"path": "sparse"})).await,
        Err("sparse is longer than 16777216 bytes; search in it".to_owned())
    );
}

/// No process writes to this FIFO, so opening it would block forever.
#[tokio::test]
async fn a_fifo_is_not_opened() {
    let (directory, files) = tree();
    let fifo = directory.path().join("root/fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert_eq!(
        call(&files.read_file(), json!({"path": "fifo"})).await,
        Err("fifo is not a file; list_files lists directories".to_owned())
    );
    let found = call(&files.search_files(), json!({"pattern": "x", "path": "fifo"})).await.unwrap();
    assert_eq!(found["files_passed_over"], 1);
}

#[tokio::test]
async fn lists_are_in_order() {
    let (_directory, files) = tree();
    let listed = |path: &str, kind: &str| json!({"path": path, "kind": kind});
    let file = |path: &str, bytes: u64| json!({"path": path, "kind": "file", "bytes": bytes});
    for (arguments, want) in [
        (
            json!({}),
            json!([
                file("a.txt", 14),
                listed("in", "link"),
                listed("out", "link"),
                listed("src", "directory"),
                listed("up", "link"),
            ]),
        ),
        (
            json!({"path": "src", "depth": 2}),
            json!([
                listed("src/deep", "directory"),
                file("src/deep/lib.rs", 19),
                file("src/main.rs", 13),
                file("src/picture", 5),
            ]),
        ),
        (
            json!({"depth": 8, "glob": "*.rs"}),
            json!([file("src/deep/lib.rs", 19), file("src/main.rs", 13)]),
        ),
    ] {
        let result = call(&files.list_files(), arguments.clone()).await;
        assert_eq!(result, Ok(json!({"entries": want, "complete": true})), "{arguments}");
    }
    let result = call(&files.list_files(), json!({"path": "nowhere"})).await;
    assert_eq!(result, Err("there is no nowhere".to_owned()));
}

#[tokio::test]
async fn a_list_has_a_maximum() {
    let directory = tempfile::tempdir().unwrap();
    for n in 0..=LIST_ENTRIES_MAX {
        fs::write(directory.path().join(format!("{n:05}")), "").unwrap();
    }
    let list = Files::below(directory.path()).unwrap().list_files();
    let result = call(&list, json!({})).await.unwrap();
    let entries = result["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &result["complete"]), (LIST_ENTRIES_MAX, &json!(false)));
    assert_eq!(entries[LIST_ENTRIES_MAX - 1]["path"], "00999");
}

#[tokio::test]
async fn searches_find_lines() {
    let (_directory, files) = tree();
    let found =
        |path: &str, line: u32, text: &str| json!({"path": path, "line": line, "text": text});
    for (arguments, matches, searched, passed_over) in [
        (
            json!({"pattern": "two"}),
            json!([
                found("a.txt", 2, "two"),
                found("src/deep/lib.rs", 1, "// two"),
                found("src/deep/lib.rs", 2, "fn two() {}"),
            ]),
            3,
            1,
        ),
        (
            json!({"pattern": "(?i)^FN \\w+", "glob": "src/**/*.rs"}),
            json!([
                found("src/deep/lib.rs", 2, "fn two() {}"),
                found("src/main.rs", 1, "fn main() {}"),
            ]),
            2,
            0,
        ),
        (
            json!({"pattern": "t", "path": "in"}),
            json!([found("in", 2, "two"), found("in", 3, "three")]),
            1,
            0,
        ),
        (json!({"pattern": "nothing"}), json!([]), 3, 1),
    ] {
        let result = call(&files.search_files(), arguments.clone()).await;
        let want = json!({
            "matches": matches,
            "files_searched": searched,
            "files_passed_over": passed_over,
            "complete": true
        });
        assert_eq!(result, Ok(want), "{arguments}");
    }
    let error = call(&files.search_files(), json!({"pattern": "("})).await.unwrap_err();
    assert!(error.starts_with("the pattern is not a regular expression: "), "{error}");
}

#[tokio::test]
async fn a_search_has_maxima() {
    let (directory, files) = tree();
    let root = directory.path().join("root");
    fs::write(root.join("many"), "hit\n".repeat(SEARCH_MATCHES_MAX + 1)).unwrap();
    fs::write(root.join("zlong"), "wide".repeat(SEARCH_LINE_CHARS_MAX)).unwrap();
    let huge = fs::File::create(root.join("zhuge")).unwrap();
    huge.set_len(SEARCH_FILE_BYTES_MAX + 1).unwrap();
    let search = files.search_files();
    let many = call(&search, json!({"pattern": "hit"})).await.unwrap();
    assert_eq!(many["matches"].as_array().unwrap().len(), SEARCH_MATCHES_MAX);
    assert_eq!(many["complete"], false);
    let long = call(&search, json!({"pattern": "wide"})).await.unwrap();
    assert_eq!(long["matches"][0]["text"], "wide".repeat(SEARCH_LINE_CHARS_MAX / 4));
    assert_eq!((&long["files_passed_over"], &long["complete"]), (&json!(2), &json!(true)));
}

#[tokio::test]
async fn a_walk_has_a_maximum_of_depth() {
    let directory = tempfile::tempdir().unwrap();
    let mut deep = directory.path().to_owned();
    for _ in 0..WALK_DEPTH_MAX {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "hit\n").unwrap();
    let search = Files::below(directory.path()).unwrap().search_files();
    let result = call(&search, json!({"pattern": "hit"})).await.unwrap();
    assert_eq!((&result["matches"], &result["complete"]), (&json!([]), &json!(false)));
}

#[tokio::test]
async fn a_cancelled_search_ends() {
    let (_directory, files) = tree();
    let signal = CancellationToken::new();
    signal.cancel();
    let context = RecordingHost::new().context_with(signal);
    let result = files.search_files().call(json!({"pattern": "x"}), context).await;
    assert_eq!(result.unwrap_err().to_string(), "cancelled before the end");
}

#[test]
fn globs() {
    for (glob, path, want) in [
        ("*.rs", "src/main.rs", true),
        ("*.rs", "main.rsx", false),
        ("src/*.rs", "src/main.rs", true),
        ("src/*.rs", "src/deep/lib.rs", false),
        ("src/**/*.rs", "src/main.rs", true),
        ("src/**/*.rs", "src/a/b/lib.rs", true),
        ("**/lib.rs", "lib.rs", true),
        ("src/**", "src/a/b", true),
        ("?.txt", "a.txt", true),
        ("?.txt", "ab.txt", false),
        ("*.{rs,toml}", "Cargo.toml", true),
        ("*.{rs,toml}", "Cargo.lock", false),
        ("a+b.txt", "a+b.txt", true),
        ("a+b.txt", "aab.txt", false),
        ("é*", "éa", true),
    ] {
        assert_eq!(glob::Glob::new(glob).unwrap().matches(Path::new(path)), want, "{glob} {path}");
    }
    assert!(glob::Glob::new("*.{rs").is_err());
}
