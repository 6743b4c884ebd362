//! The folder that contains most of some files.

use std::collections::HashMap;

/// Says in which folder files are: the deepest one that contains at least nine of ten of them.
pub fn words<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let paths: Vec<&str> = names.filter(|name| is_path(name)).collect();
    let folder = common(paths.clone());
    match folder.as_str() {
        "" => "in several folders".to_owned(),
        _ if paths.iter().all(|path| path.starts_with(&folder)) => format!("in {folder}"),
        _ => format!("(most of them in {folder})"),
    }
}

/// Returns the deepest folder that contains at least nine of ten of the files, with a slash at its
/// end; empty if there is none but the root, or no path.
fn common(mut paths: Vec<&str>) -> String {
    let least = paths.len() - paths.len() / 10;
    if least == 0 {
        return String::new();
    }
    let mut folder = "/".to_owned();
    loop {
        let mut below: HashMap<&str, usize> = HashMap::new();
        for path in &paths {
            if let Some((child, _)) = path[folder.len()..].split_once('/') {
                *below.entry(child).or_default() += 1;
            }
        }
        let most = below.into_iter().max_by_key(|(child, n)| (*n, *child));
        let Some((child, _)) = most.filter(|(_, n)| *n >= least) else {
            break;
        };
        folder = format!("{folder}{child}/");
        paths.retain(|path| path.starts_with(&folder));
    }
    match folder.as_str() {
        "/" => String::new(),
        _ => folder,
    }
}

/// False for a file that never had a path, such as one of memfd.
pub fn is_path(name: &str) -> bool {
    const NAMELESS: [&str; 5] = ["/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage", "/[aio]"];
    name.starts_with('/') && !NAMELESS.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn the_folder_contains_nine_of_ten_files() {
        let many: Vec<_> = (0..90).map(|n| format!("/data/topic{n}/0.index")).collect();
        let of = |others: &[&str]| {
            let all = many.iter().map(String::as_str);
            words(all.chain(others.iter().copied()))
        };
        assert_eq!(of(&[]), "in /data/");
        assert_eq!(of(&["/memfd:x (deleted)"]), "in /data/");
        assert_eq!(of(&["/usr/lib/libc.so.6"]), "(most of them in /data/)");
        let elsewhere = ["/srv/a"; 11];
        assert_eq!(of(&elsewhere), "in several folders");
        assert_eq!(words(["/a/b/c", "/a/b/d"].into_iter()), "in /a/b/");
        assert_eq!(words(["", "[heap]"].into_iter()), "in several folders");
    }
}
