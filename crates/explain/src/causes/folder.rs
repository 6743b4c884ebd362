//! The folder that contains most of some files.

use std::collections::HashMap;

/// Returns the deepest folder that contains at least nine of ten of the files, with a slash at its
/// end; empty if there is none but the root, or no path among the names.
pub fn common<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut paths: Vec<&str> = names.filter(|name| is_path(name)).collect();
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
    use super::common;

    #[test]
    fn the_folder_contains_nine_of_ten_files() {
        let many: Vec<_> = (0..90).map(|n| format!("/data/topic{n}/0.index")).collect();
        let of = |others: &[&str]| {
            let all = many.iter().map(String::as_str);
            common(all.chain(others.iter().copied()))
        };
        assert_eq!(of(&[]), "/data/");
        assert_eq!(of(&["/usr/lib/libc.so.6", "/memfd:x (deleted)"]), "/data/");
        let elsewhere = ["/srv/a"; 11];
        assert_eq!(of(&elsewhere), "");
        assert_eq!(common(["/a/b/c", "/a/b/d"].into_iter()), "/a/b/");
        assert_eq!(common(["", "[heap]"].into_iter()), "");
    }
}
