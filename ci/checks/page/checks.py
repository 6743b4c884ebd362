"""What every page must do in a browser; each check raises `AssertionError` with a reason."""

CONTROLS = {"button", "combobox", "slider", "searchbox", "radio", "checkbox", "textbox", "application", "link", "image", "img"}

# Controls that can be used now: visible and enabled. Of radio buttons with one name, the keyboard reaches one.
REACHABLE = """
const all = document.querySelectorAll('a[href], button, select, input, summary, [tabindex="0"]');
const seen = new Set();
return [...all].filter((element) => {
  if (element.disabled || element.tabIndex < 0 || !element.checkVisibility()) return false;
  if (element.type === 'radio') return element.checked;
  return !element.closest('details:not([open]) > :not(summary)');
}).map((element, i) => { element.dataset.reach = i; return i; });
"""

# Pairs of colours of text and what lies behind it, with too little contrast.
CONTRAST = """
const parse = (text) => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return { rgb: [r, g, b], a };
};
const known = new Map();
const parsed = (text) => { if (!known.has(text)) known.set(text, parse(text)); return known.get(text); };
const light = ([r, g, b]) => [r, g, b].map((n) => n / 255).map((n) => (n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4))
  .reduce((sum, n, i) => sum + n * [0.2126, 0.7152, 0.0722][i], 0);
const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const { rgb, a } = parsed(getComputedStyle(at).backgroundColor);
    if (a === 255) return rgb;
  }
  return parsed('Canvas').rgb;
};
const bad = new Set();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || ['SCRIPT', 'STYLE', 'OPTION'].includes(element.tagName)) continue;
  if (!element.checkVisibility() || element.closest('.unseen, .skip, :disabled')) continue;
  const style = getComputedStyle(element);
  const colour = element.namespaceURI.endsWith('svg') ? style.fill : style.color;
  const found = ratio(parsed(colour).rgb, behind(element));
  if (found < 4.5) bad.add(`${element.tagName}.${element.className} "${walker.currentNode.data.trim().slice(0, 30)}" ${found.toFixed(2)}`);
}
const root = getComputedStyle(document.documentElement);
const of = (name) => parsed(root.getPropertyValue(name).trim()).rgb;
for (const name of ['--text', '--muted', '--failure']) {
  const found = ratio(of(name), of('--surface'));
  if (found < 4.5) bad.add(`${name} in pictures ${found.toFixed(2)}`);
}
for (const name of ['--merge', '--split', '--refusal', ...Array.from({ length: 10 }, (_, i) => `--c${i}`)]) {
  const found = ratio(of(name), of('--surface'));
  if (found < 3) bad.add(`${name} in pictures ${found.toFixed(2)}, needs 3`);
}
return [...bad];
"""


def quiet(browser):
    """Nothing on the console, nothing from the network, nothing run that is not the page's own."""
    complaints = browser.complaints()
    assert not complaints, f"the console has {complaints[:3]}"
    requests = browser.requests()
    assert not requests, f"the page asked for {requests[:3]}"
    scripts = browser.ask("return [document.scripts.length, document.querySelectorAll('main script, main iframe, main img').length]")
    assert scripts[1] == 0, f"names became markup: {scripts}"


def contrast(browser):
    bad = browser.ask(CONTRAST)
    assert not bad, f"too little contrast: {bad[:5]}"


def names(browser):
    """Every control and picture has a name; there is one main heading, and headings skip no level."""
    nameless = [role for role, name in browser.names() if role in CONTROLS and not name.strip()]
    assert not nameless, f"without a name: {nameless[:5]}"
    levels = browser.ask("return [...document.querySelectorAll('h1,h2,h3,h4')].filter((h) => h.checkVisibility()).map((h) => +h.tagName[1])")
    assert levels.count(1) == 1 and levels[0] == 1, f"headings: {levels}"
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:])), f"headings skip a level: {levels}"
    assert browser.ask("return document.documentElement.lang") == "en"


def fits(browser, width):
    """The page does not scroll sideways."""
    wide = browser.ask("return document.documentElement.scrollWidth")
    assert wide <= width, f"{wide} pixels wide in a window of {width}"


def pictures(browser):
    """Every visible canvas has more than one colour."""
    canvases = browser.ask("return [...document.querySelectorAll('canvas')].filter((c) => c.checkVisibility()).map((c) => c.id)")
    for canvas in canvases:
        colours = browser.hash_of(canvas)[1]
        # What lies over the map may be empty.
        assert colours > 1 or canvas == "map-over", f"the picture {canvas} is blank"
    return canvases


def keyboard(browser):
    """The Tab key reaches every control, and each shows that it has the focus."""
    wanted = set(browser.ask(REACHABLE))
    browser.ask("document.activeElement?.blur(); window.getSelection().removeAllRanges(); window.scrollTo(0, 0);")
    reached, hidden = set(), []
    for _ in range(len(wanted) + 10):
        browser.key("Tab")
        found = browser.ask(
            "const e = document.activeElement, s = getComputedStyle(e);"
            "return [e.dataset.reach ?? null, parseFloat(s.outlineWidth) >= 2 && s.outlineStyle !== 'none', e.outerHTML.slice(0, 90)]"
        )
        if found[0] is None:
            continue
        reached.add(int(found[0]))
        if not found[1]:
            hidden.append(found[2])
    missing = wanted - reached
    assert not missing, f"the keyboard does not reach {len(missing)} of {len(wanted)} controls: " + browser.ask(
        "return [...document.querySelectorAll('[data-reach]')].filter((e) => arguments[0].includes(+e.dataset.reach))"
        ".slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).join(' ')", sorted(missing))
    assert not hidden, f"focus is not visible: {hidden[:3]}"
    return len(wanted)


def tables(browser):
    """A click on a heading sorts, and the button copies."""
    sorted_up = browser.change(
        """
        const table = [...document.querySelectorAll('table.sortable')].find((t) => t.tBodies[0].rows.length > 2 && t.checkVisibility());
        if (!table) return null;
        const headings = [...table.tHead.rows[0].cells];
        const i = headings.length - 1 - headings.toReversed().findIndex((h) => !h.classList.contains('text'));
        if (i >= headings.length) return null;
        headings[i].querySelector('button').click();
        const unit = (text) => ({ KiB: 1, MiB: 1024, GiB: 1024 ** 2, TiB: 1024 ** 3 })[text.slice(-3)] ?? 1;
        const values = [...table.tBodies[0].rows].map((row) => row.cells[i].textContent.replaceAll(',', ''))
          .map((text) => parseFloat(text) * unit(text));
        table.querySelector('.copy').click();
        return [headings[i].getAttribute('aria-sort'), values.every((n, at) => !at || Number.isNaN(n) || values[at - 1] <= n)];
        """
    )
    assert sorted_up in (None, ["ascending", True]), f"the table is not sorted: {sorted_up}"
    if sorted_up:
        browser.settle()
        assert browser.ask("return document.querySelector('.copy').checkVisibility() && [...document.querySelectorAll('.copy')].some((b) => b.textContent === 'copied')")


def printed(browser):
    """The page prints, and its pictures are dark on white even if the screen is dark."""
    before = browser.ask("return getComputedStyle(document.documentElement).getPropertyValue('--text')")
    canvases = browser.ask("return [...document.querySelectorAll('canvas')].filter((c) => c.checkVisibility()).map((c) => c.id)")
    shown = {canvas: browser.hash_of(canvas) for canvas in canvases}
    browser.ask("window.dispatchEvent(new Event('beforeprint'))")
    for canvas in canvases:
        changed = browser.hash_of(canvas) != shown[canvas]
        assert changed or shown[canvas][1] < 2, f"{canvas} is printed in the colours of the dark screen"
    browser.ask("window.dispatchEvent(new Event('afterprint'))")
    browser.settle()
    assert browser.ask("return getComputedStyle(document.documentElement).getPropertyValue('--text')") == before
    pdf = browser.printed()
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000, f"the print has {len(pdf)} bytes"
