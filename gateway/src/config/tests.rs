//! What a configuration file may say, and what is answered to one that may not.

use super::*;

fn parse(text: &str) -> Result<Config, Error> {
    Config::parse(text, Path::new("/etc/rbdgate"))
}

fn problems(text: &str) -> Vec<String> {
    match parse(text) {
        Err(Error::Invalid(problems)) => problems.iter().map(Problem::to_string).collect(),
        other => panic!("expected problems, got {other:?}"),
    }
}

const SMALL: &str = "
disks:
  vm1:
    file: { path: vm1.img, size: 10GiB }
targets:
  - name: iqn.2026-01.com.example:One
    luns: { 0: vm1 }
    open: true
";

#[test]
fn a_small_file_gets_defaults_for_the_rest() {
    let config = parse(SMALL).unwrap();
    assert_eq!(config.listen, ["0.0.0.0:3260".parse().unwrap()]);
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.state.as_deref(), Some(Path::new("/var/lib/rbdgate")));
    let store = Store::File { path: "/etc/rbdgate/vm1.img".into(), size: Some(10 << 30) };
    assert_eq!(config.disks["vm1"].store, store);
    let target = &config.targets["iqn.2026-01.com.example:one"];
    assert_eq!(target.luns[&0], "vm1");
    assert_eq!(target.parameters, Parameters::default());
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_accepted_ones() {
    let text = SMALL.replace("size: 10GiB", "sise: 10GiB");
    let message = parse(&text).unwrap_err().to_string();
    assert!(message.contains("sise") && message.contains("size") && message.contains("4"), "{message}");
}

#[test]
fn a_lun_of_an_unknown_disk_is_refused_with_its_line_and_the_known_disks() {
    let text = SMALL.replace("0: vm1", "0: vm2");
    assert_eq!(problems(&text), ["line 7, targets[0].luns.0: there is no disk \"vm2\"; the file has: vm1"]);
}

#[test]
fn every_problem_is_reported_at_once() {
    let text = SMALL
        .replace("10GiB", "10")
        .replace("iqn.2026-01.com.example:One", "my target")
        .replace("0: vm1", "0: vm9");
    let found = problems(&text);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn a_disk_has_exactly_one_store() {
    let text = SMALL.replace("    file:", "    memory: { size: 1GiB }\n    file:");
    assert_eq!(problems(&text), ["line 4, disks.vm1: has 2 stores; give exactly one of rbd, file, memory"]);
}

#[test]
fn a_target_that_nobody_may_use_is_refused() {
    let text = SMALL.replace("    open: true\n", "");
    assert!(problems(&text)[0].contains("nobody may log in"));
}

#[test]
fn a_short_chap_secret_is_refused_and_not_shown() {
    let text = SMALL.replace(
        "    open: true",
        "    initiators:\n      - name: iqn.2026-01.com.example:host\n        chap: { user: host, secret: hunter2 }",
    );
    let found = problems(&text);
    assert!(found[0].contains("12 to 255") && !found[0].contains("hunter2"), "{found:?}");
}

#[test]
fn a_secret_can_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "twelve-and-more\n").unwrap();
    let text = SMALL.replace(
        "    open: true",
        "    initiators:\n      - name: iqn.2026-01.com.example:host\n        chap: { user: host, secret_file: secret }",
    );
    let config = Config::parse(&text, folder.path()).unwrap();
    let initiator = &config.targets["iqn.2026-01.com.example:one"].initiators["iqn.2026-01.com.example:host"];
    assert_eq!(initiator.login.chap.as_ref().unwrap().secret.expose(), b"twelve-and-more");
    assert!(!format!("{config:?}").contains("twelve"));
}

#[test]
fn mutual_secrets_must_differ() {
    let both = "{ user: a, secret: same-same-same }";
    let text = SMALL.replace(
        "    open: true",
        &format!(
            "    initiators:\n      - name: iqn.2026-01.com.example:host\n        chap: {both}\n        mutual_chap: {both}"
        ),
    );
    assert!(problems(&text)[0].contains("must differ"));
}

#[test]
fn one_disk_cannot_be_two_luns() {
    let text = SMALL.replace("0: vm1", "0: vm1, 1: vm1");
    assert!(problems(&text)[0].contains("serve a disk once"));
}

#[test]
fn block_sizes_go_together_as_512n_512e_and_4kn() {
    let disk = |sizes: &str| SMALL.replace("  vm1:", &format!("  vm1:\n{sizes}"));
    let sizes = |text: &str| {
        let disk = &parse(text).unwrap().disks["vm1"];
        (disk.block_size, disk.physical_block_size)
    };
    assert_eq!(sizes(SMALL), (512, 4096));
    assert_eq!(sizes(&disk("    physical_block_size: 512")), (512, 512));
    assert_eq!(sizes(&disk("    block_size: 4096")), (4096, 4096));
    let wrong = problems(&disk("    block_size: 4096\n    physical_block_size: 512"));
    assert!(wrong[0].contains("512 is below block_size, which is 4096"), "{wrong:?}");
    assert!(problems(&disk("    physical_block_size: 8192"))[0].contains("512 or 4096"));
}

#[test]
fn a_pool_threshold_is_a_percentage() {
    let disk = |percent: &str| SMALL.replace("  vm1:", &format!("  vm1:\n    pool_threshold: {percent}"));
    assert_eq!(parse(&disk("80")).unwrap().disks["vm1"].pool_threshold, Some(80));
    for percent in ["0", "100"] {
        assert!(problems(&disk(percent))[0].contains("from 1 to 99"));
    }
}

#[test]
fn addresses_may_leave_out_the_port() {
    let text = format!("listen: [127.0.0.1, '[::1]:3261', '::1']\n{SMALL}");
    let expected: Vec<SocketAddr> =
        ["127.0.0.1:3260", "[::1]:3261", "[::1]:3260"].iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(parse(&text).unwrap().listen, expected);
}

#[test]
fn yaml_that_is_none_is_refused_with_its_place() {
    let message = parse("disks: [\n").unwrap_err().to_string();
    assert!(message.contains("line 1") || message.contains("1:"), "{message}");
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = level - 1;
        text += &format!(
            "a{level}: &a{level} [*a{before}, *a{before}, *a{before}, *a{before}, *a{before}, *a{before}]\n"
        );
    }
    assert!(parse(&text).is_err());
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[ -~\n]{0,200}") {
        let _ = parse(&text);
    }
}

#[test]
fn a_redirection_names_an_address_that_can_be_reached() {
    let whole = format!("redirect: {{ address: 192.0.2.1, permanent: true }}\n{SMALL}");
    let to = Redirect { address: "192.0.2.1:3260".parse().unwrap(), permanent: true };
    assert_eq!(parse(&whole).unwrap().redirect, Some(to));
    let one = format!("{SMALL}    redirect: {{ address: \"[::]:3260\" }}\n");
    let found = problems(&one);
    assert!(found[0].contains("targets[0].redirect.address") && found[0].contains("can reach"), "{found:?}");
}

#[test]
fn a_name_that_is_none_is_refused_with_the_reason() {
    let found = problems(&SMALL.replace("example:One", "example:one two"));
    assert!(found[0].contains("targets[0].name") && found[0].contains("' '"), "{found:?}");
}

#[test]
fn two_disks_that_hosts_could_not_tell_apart_are_refused() {
    // 25 hexadecimal digits of a serial are in the NAA name, as the kernel target makes it.
    let two = |first: &str, second: &str| {
        SMALL.replace(
            "    file: { path: vm1.img, size: 10GiB }\n",
            &format!(
                "    file: {{ path: vm1.img, size: 10GiB }}\n    serial: {first}\n  vm2:\n    memory: {{ size: 1GiB }}\n    serial: {second}\n"
            ),
        )
    };
    let (one, other) = ("8e9a1d6c-12f3-4a5b-9c7d-0123456789ab", "8E9A1D6C-12F3-4A5B-9C7D-0123456789AC");
    let found = problems(&two(one, other));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("line 8, disks.vm2.serial: ") && found[0].contains("\"vm1\""), "{found:?}");
    assert_eq!(problems(&two("disk-1", "disk-1")).len(), 1);
    parse(&two("disk-1", "disk-2")).unwrap();
    parse(&two(one, "8e9a1d6d-12f3-4a5b-9c7d-0123456789ab")).unwrap();
}

#[test]
fn what_the_kernels_target_cannot_do_is_refused() {
    let file = |more: &str, target: &str| {
        format!(
            "{more}\ndisks: {{ a: {{ memory: {{ size: 1MiB }} }} }}\ntargets:\n  - {{ name: \"iqn.2026-01.com.example:t\", \
             luns: {{ 0: a }}, {target} }}\n"
        )
    };
    let check = |more: &str, target: &str| match Config::parse(&file(more, target), Path::new("/")) {
        Ok(config) => format!("{:?}", config.targets.values().next().unwrap().frontend),
        Err(error) => error.to_string(),
    };
    assert_eq!(check("", "open: true"), "Portal");
    assert_eq!(check("frontend: lio", "open: true"), "Lio");
    assert_eq!(check("frontend: lio", "open: true, frontend: portal"), "Portal");
    let host = |name: &str, more: &str| format!("{{ name: \"iqn.2026-01.com.example:{name}\"{more} }}");
    let chap = |secret: &str| format!(", chap: {{ user: u, secret: \"{secret}\" }}");
    let mixed = format!("initiators: [{}, {}]", host("a", &chap("at-least-12-bytes")), host("b", ""));
    assert!(check("frontend: lio", &mixed).contains("every initiator"), "{}", check("frontend: lio", &mixed));
    let odd = format!("initiators: [{}]", host("a", &chap("NULL-and-more-bytes")));
    assert!(check("frontend: lio", &odd).contains("NULL"));
    assert!(check("frontend: lio", "open: true, redirect: { address: 192.0.2.1 }").contains("redirect"));
    assert!(check("frontend: loopback", "open: true").contains("naa."));
}
