use std::collections::BTreeMap;

use super::*;

fn name(server: &str, tool: &str) -> String {
    tool_name(&prefix(server), tool)
}

#[test]
fn names() {
    let long = "a_very_long_name_of_a_tool_that_goes_on_and_on_until_nobody_reads_it_any_more";
    let names = [
        ("files", "read_file"),
        ("files", "read.file"),
        ("files", "read/file"),
        ("files", "_private"),
        ("files", ""),
        ("my server", "x"),
        ("größe", "länge"),
        ("", "x"),
        ("_", "x"),
        ("a__b", "c"),
        ("a", "b__c"),
        ("a_", "c"),
        ("a", "_c"),
        ("files", long),
        ("a-server-whose-name-is-as-long-as-its-tool's", long),
    ]
    .map(|(server, tool)| format!("{server:?} {tool:?}: {}\n", name(server, tool)));
    insta::assert_snapshot!(names.concat(), @r#"
    "files" "read_file": files__read_file
    "files" "read.file": files__read_file_2d6f0437
    "files" "read/file": files__read_file_e53a8158
    "files" "_private": files___private
    "files" "": files___811c9dc5
    "my server" "x": my_server-809ef0ee__x
    "größe" "länge": gr_e-cd38f49a__l_nge_3b2aad0a
    "" "x": mcp-811c9dc5__x
    "_" "x": mcp-da0c196e__x
    "a__b" "c": a_b-749bc500__c
    "a" "b__c": a__b__c
    "a_" "c": a-72254009__c
    "a" "_c": a___c
    "files" "a_very_long_name_of_a_tool_that_goes_on_and_on_until_nobody_reads_it_any_more": files__a_very_long_name_of_a_tool_that_goes_on_and_on_u_c7ee2522
    "a-server-whose-name-is-as-long-as-its-tool's" "a_very_long_name_of_a_tool_that_goes_on_and_on_until_nobody_reads_it_any_more": a-server-whose-name-is--15224da9__a_very_long_name_of_a_c7ee2522
    "#);
}

#[test]
fn every_name_is_legal_and_none_is_shared() {
    let pieces =
        ["", "a", "_", "__", "a_", "_a", "a__b", "b", ".", "a.b", "-", "é", &"x".repeat(70)];
    let mut seen = BTreeMap::new();
    for server in pieces {
        for tool in pieces {
            let name = name(server, tool);
            assert!((1..=TOOL_NAME_CHARS_MAX).contains(&name.len()), "{name}");
            assert!(
                name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)),
                "{name}"
            );
            let (first, _) = name.split_once(SEPARATOR).unwrap();
            assert_eq!(first, prefix(server), "the first separator ends the server's part");
            assert_eq!(seen.insert(name.clone(), (server, tool)), None, "{name}");
        }
    }
}
