"""The controls of the pictures, used by mouse and keys as a reader would."""

CLICK = "document.getElementById(arguments[0]).click()"
CHOOSE = """
const select = document.getElementById(arguments[0]);
select.value = arguments[1];
select.dispatchEvent(new Event(arguments[2] ?? 'change'));
"""


def differs(browser, canvas, script, *arguments):
    """Runs a script, and requires that a picture changes; returns the picture before."""
    before = browser.hash_of(canvas)
    browser.change(script, *arguments)
    assert browser.hash_of(canvas) != before, f"{canvas} did not change after {script[:40]} {arguments}"
    return before


def view(browser, several_mappings):
    """Colours, address scales and zoom redraw the map, and `all` restores it."""
    for colours in ("reason", "site", "family", "kind"):
        browser.change(CHOOSE, "colour", colours)
        assert browser.ask("return document.querySelectorAll('#legend li').length") > 0, f"no legend for {colours}"
    differs(browser, "map", CHOOSE, "colour", "reason")
    browser.change(CHOOSE, "colour", "kind")
    for axis in ("bytes", "even"):
        differs(browser, "map", CHOOSE, "axis", axis)
    browser.change(CHOOSE, "axis", "runs")
    whole = differs(browser, "map", CLICK, "in")
    browser.change(CLICK, "out")
    browser.change(CLICK, "whole")
    assert browser.hash_of("map") == whole, "`all` does not restore the picture"
    if several_mappings:
        marks(browser)


def marks(browser):
    """Frames, reasons and legends mark mappings; Escape removes the mark."""
    plain = browser.hash_of("map")
    for selector in ("#legend button", "#reasons li:last-child button", "#flame > :last-child", "#families .family"):
        if not browser.ask("return !!document.querySelector(arguments[0])", selector):
            continue
        browser.change("document.querySelector(arguments[0]).click()", selector)
        assert browser.hash_of("map") != plain, f"{selector} marks nothing"
        pressed = browser.ask("return document.querySelectorAll('[aria-pressed=true]').length")
        assert pressed > 0, f"{selector} does not say that it is pressed"
        browser.change("document.getElementById('map-over').focus()")
        browser.key("Escape")
        browser.settle()
        assert browser.hash_of("map") == plain, f"Escape does not remove the mark of {selector}"


def text(browser, element):
    return browser.ask("return document.getElementById(arguments[0]).textContent", element)


def moments(browser):
    """The slider and the keys move the moment, and everything follows."""
    listed = text(browser, "list")
    step = browser.ask("return +document.getElementById('moment').min + 3")
    differs(browser, "map-over", CHOOSE, "moment", str(step), "input")
    assert f"step {step:,} of" in text(browser, "readout"), text(browser, "readout")
    assert text(browser, "list") != listed, "the list does not follow the moment"
    browser.change("document.getElementById('map-over').focus()")
    before = browser.ask("return document.getElementById('moment').value")
    browser.key("ArrowRight")
    browser.settle()
    assert browser.ask("return document.getElementById('moment').value") != before, "the right arrow does not move"
    spoken = text(browser, "spoken")
    browser.key("ArrowUp")
    browser.settle()
    assert text(browser, "spoken") != spoken and "made by" in text(browser, "spoken"), "the up arrow says nothing"
    browser.key("Enter")
    browser.settle()
    assert not browser.ask("return document.getElementById('unmark').disabled"), "Enter marks nothing"
    browser.key("Escape")
    browser.key("p")
    browser.settle()
    merges(browser)


def merges(browser):
    """`m` goes to a merge and says where it is; a click into a lane does, too."""
    browser.change(CHOOSE, "moment", "0", "input")
    browser.change("document.getElementById('map-over').focus()")
    browser.key("m")
    browser.settle()
    said = text(browser, "spoken")
    has_merges = not browser.ask("return document.getElementById('lanes').getAttribute('aria-label')").startswith("In the shown interval: 0 merges")
    assert ("merge (" in said) == has_merges, f"m says: {said}"
    shown = browser.ask("const b = document.querySelector('.tiles .go'); b?.click(); return !!b && !b.hidden")
    browser.settle()
    if shown:
        assert "step" in text(browser, "spoken")


def pointer(browser):
    """A click chooses a mapping, a drag moves the view, the wheel zooms after a click."""
    box = browser.ask("const e = document.getElementById('map-over'); e.scrollIntoView({block: 'center'});"
                      "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]")
    x, y = box[0] + box[2] * 0.4, box[1] + box[3] * 0.985

    def mouse(kind, x, y, **more):
        browser.protocol("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1, **more)

    mouse("mousePressed", x, y)
    mouse("mouseReleased", x, y)
    browser.settle()
    assert "made by" in text(browser, "readout"), f"a click says: {text(browser, 'readout')}"
    plain = browser.hash_of("map")
    mouse("mouseWheel", x, y, deltaX=0, deltaY=-200)
    browser.settle()
    zoomed = browser.hash_of("map")
    assert zoomed != plain, "the wheel does not zoom after a click"
    mouse("mousePressed", x, y)
    mouse("mouseMoved", x + 40, y - 60)
    mouse("mouseReleased", x + 40, y - 60)
    browser.settle()
    assert browser.hash_of("map") != zoomed, "a drag does not move the view"
    browser.change(CLICK, "whole")


def flame_keys(browser):
    """Arrow keys move in the flame graph."""
    browser.ask("document.querySelector('#flame [tabindex=\"0\"]').focus()")
    browser.key("ArrowDown")
    level = browser.ask("return document.activeElement.getAttribute('aria-label')")
    assert level and level.endswith("level 2"), f"after the down arrow: {level}"


def find(browser):
    """The search narrows the list."""
    whole = text(browser, "found")
    browser.change("const e = document.getElementById('find'); e.value = 'rw-p'; e.dispatchEvent(new Event('input'))")
    assert text(browser, "found") != whole, "the search does not narrow the list"
    browser.change("const e = document.getElementById('find'); e.value = ''; e.dispatchEvent(new Event('input'))")


def redraw(browser):
    """Median time of a redraw of the whole page's pictures while zooming, in milliseconds."""
    return browser.driver.execute_async_script(
        """
        const done = arguments[0], times = [];
        const step = (n) => {
          if (!n) return done(times.sort((a, b) => a - b)[times.length >> 1]);
          document.getElementById(n % 2 ? 'closer' : 'wider')?.click();
          const begun = performance.now();
          requestAnimationFrame(() => { const drawn = performance.now(); requestAnimationFrame(() => {
            times.push(drawn - begun); step(n - 1); }); });
        };
        step(10);
        """
    )
