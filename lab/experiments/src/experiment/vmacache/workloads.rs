//! Scripts whose recorded runs supply the data for the four tables.

use super::super::{Context, source};
use crate::cache::workloads::searchers;
use std::path::Path;

/// Script that boots the userland in the working directory, in an unprivileged container.
///
/// Root in the container is mapped to the user, or to `nobody` if the user is root, so it can
/// neither set the clock nor change `sysctl` values. The last boot script terminates the container
/// with `reboot`, which the kernel converts to a signal to init.
const BOOT: &str = r#"
rm -f booted
enter="unshare --user --map-root-user --mount --pid --fork --kill-child"
enter="timeout -k 1 300 $enter --net --ipc --uts --cgroup"
[ "$(id -u)" != 0 ] || enter="setpriv --reuid=65534 --regid=65534 --clear-groups $enter"
$enter sh -c '
    for node in null zero full random urandom tty; do
        : >dev/$node
        mount --bind /dev/$node dev/$node
    done
    exec chroot . /sbin/init' </dev/null
test -e booted
"#;

const WAREHOUSE: &str = "
pragma cache_size = -40000;
create temp table item as
  with recursive n(i) as (select 0 union all select i + 1 from n where i < 4999)
  select i as id, 'kind ' || (i * 7919 % 97) as kind from n;
create temp table sale as
  with recursive n(i) as (select 1 union all select i + 1 from n where i < ROWS)
  select i * 7919 % 5000 as item, i * 104729 % 200 as shop, i % 365 as day,
         (i * 1299709 % 10007) / 100.0 as price, 'note ' || i as note from n;
create index by_item on sale (item, day);
select count(*) from (
  select kind, shop, count(*), avg(price), max(day) from sale join item on item.id = sale.item
  group by kind, shop having count(*) > 2 order by 4 desc);
select count(*) from (
  select day, price, rank() over (partition by day order by price) from sale);
select count(distinct note), sum(price * price) from sale where item in (
  select item from sale group by item order by sum(price) desc limit 500);
select a.day, corr from (select day, avg(price) * count(*) as corr from sale group by day) a
  order by corr desc limit 5;
";

/// A script to record.
pub(super) struct Script {
    /// Name of the workload.
    pub(super) name: String,
    /// Text of the script, or the reason why the script cannot run.
    pub(super) text: Result<String, String>,
}

/// Returns the scripts for the boot, the kernel build and data mining, each of which runs once.
pub(super) fn single(context: &Context<'_>) -> [Script; 3] {
    let script = |name: &str, text| Script {
        name: name.to_owned(),
        text,
    };
    [
        script("system bootup", boot(context)),
        script("kernel build", kernel(context)),
        script("data mining", warehouse(context)),
    ]
}

fn boot(context: &Context<'_>) -> Result<String, String> {
    let root = source::userland(context)?;
    Ok(format!("cd '{}'\n{BOOT}", root.display()))
}

/// Prepares a build of part of the kernel; the returned script only compiles it.
fn kernel(context: &Context<'_>) -> Result<String, String> {
    let tree = source::linux(context)?;
    let out = context.cache.join("linux-tiny");
    let make = format!("make -s -C '{}' O='{}'", tree.display(), out.display());
    if !out.join("include/generated/autoconf.h").exists() {
        context.host.note("preparing the kernel's tree");
        let script = format!(
            "mkdir -p '{0}'; {make} tinyconfig; {make} prepare",
            out.display()
        );
        source::shell("preparing the kernel's tree", &context.cache, &script)?;
    }
    let part = if context.quick {
        "mm/mmap.o mm/memory.o mm/rmap.o mm/slub.o"
    } else {
        "mm/ kernel/"
    };
    let clean = format!(
        "find '{0}/mm' '{0}/kernel' -name '*.o' -delete 2>/dev/null || true",
        out.display()
    );
    source::shell("removing old objects", &context.cache, &clean)?;
    Ok(format!("exec {make} -j2 {part}"))
}

fn warehouse(context: &Context<'_>) -> Result<String, String> {
    source::need(&[("sqlite3", "sqlite3")])?;
    let rows = if context.quick { "60000" } else { "600000" };
    let queries = WAREHOUSE.replace("ROWS", rows);
    Ok(format!("exec sqlite3 :memory: <<'END'\n{queries}\nEND\n"))
}

/// Returns a script that runs the search program, for each number of threads.
pub(super) fn ebizzy(folder: &Path) -> Result<Vec<(u32, Script)>, String> {
    let workloads = searchers(folder)?;
    let threads = crate::cache::workloads::SEARCHERS.map(|(threads, _)| threads);
    let script = |(threads, workload): (u32, crate::cache::Workload)| {
        let text = workload.command.last().and_then(|text| text.to_str());
        let text = text.ok_or("the directory's name is not UTF-8".to_owned());
        let name = format!("ebizzy, {threads} threads");
        (
            threads,
            Script {
                name,
                text: text.map(str::to_owned),
            },
        )
    };
    Ok(threads.into_iter().zip(workloads).map(script).collect())
}
