"""The studio in a browser: source errors in place, proofs, edits, counterexamples, trainings."""

import json
import re

import pytest
from playwright.sync_api import expect

from glassformer import Labels, load, save
from server.conftest import ADDER, serving

PATIENCE = 60_000  # milliseconds: machines may be busy
WRONG = 'tokens = [*"abc"]\nlength = 6\nemit = firs(token, default="a")\n'
MARKUP = "<img src=x onerror=hacked=1><script>hacked=1</script>"
pytestmark = pytest.mark.slow  # a server, its workers and a browser of its own


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A folder with a model whose names are markup."""
    from dataclasses import replace

    folder = tmp_path_factory.mktemp("evil")
    labels = Labels(slots={MARKUP: (0, 1)}, heads={"0.0": MARKUP})
    save(replace(load(ADDER), labels=labels), folder / "evil.safetensors")
    return folder


@pytest.fixture(scope="module")
def server(evil):
    with serving([ADDER], folders=[evil]) as result:
        yield result.open


@pytest.fixture
def page(chromium, server):
    """The open page. An error or a request to another server fails the test."""
    complaints, asked = [], []
    context = chromium.new_context(viewport={"width": 1300, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.on("console", lambda m: complaints.append(f"{m.type}: {m.text}"))
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.on("request", lambda r: asked.append(r.url))
    page.goto(server.address)
    page.wait_for_selector("#refs option", state="attached")
    yield page
    own = f"http://127.0.0.1:{server.port}/"
    assert not [url for url in asked if not url.removeprefix("blob:").startswith(own)]
    assert page.evaluate("() => typeof hacked") == "undefined"
    assert not complaints
    context.close()


def verdict(page, result):
    expect(page.locator("#judged")).to_have_attribute("data-result", result, timeout=PATIENCE)
    return page.text_content("#verdict")


def test_source_errors_are_shown_in_place_until_fixed(page):
    page.fill("#source-text", WRONG)
    expect(page.locator("#source-errors li")).to_have_count(1)
    assert "line 3, column 8" in page.text_content("#source-errors")
    assert page.text_content(".marks mark") == "firs"  # under the word itself
    assert "did you mean first" in page.text_content(".marks .aside")
    assert page.get_attribute("#source-text", "aria-invalid") == "true"
    assert page.text_content("#title") == ADDER  # what was there stays
    page.click("#source-errors button")
    assert page.evaluate("() => document.activeElement.selectionStart") == WRONG.index("firs")
    page.keyboard.press("Control+ArrowRight")
    page.keyboard.type("t")  # first
    expect(page.locator("#title")).to_have_text("source.glass")
    assert page.input_value("#source-text") == WRONG.replace("firs", "first")
    assert page.evaluate("() => document.activeElement.id") == "source-text"  # typing goes on
    expect(page.locator("#source-errors li")).to_have_count(0)
    expect(page.locator("#source-status")).to_contain_text("proved for all texts of up to 6 tokens")
    page.fill("#input", "c a b")
    expect(page.locator("#answer")).to_have_text("c")
    page.click("#prove")
    output = verdict(page, "proved")
    assert output.startswith("proved, margin") and "every text of up to 6 tokens" in output


def test_the_status_is_cleared_by_typing(page):
    page.fill("#source-text", WRONG.replace("firs(", "first("))
    expect(page.locator("#source-status")).to_contain_text("compiled and proved", timeout=PATIENCE)
    output = """() => {
        const box = document.getElementById("source-text");
        box.value += " ";
        box.dispatchEvent(new Event("input"));
        return document.getElementById("source-status").textContent;
    }"""
    assert page.evaluate(output) == ""


def test_an_edit_breaks_the_proof_and_undo_restores_it(page):
    page.click("#prove")
    margin = verdict(page, "proved")
    assert re.search(r"proved, margin [0-9.]+ — every row was run", margin)
    box = page.locator("#weights .cell input")
    box.fill("-9999")
    box.press("Enter")
    output = verdict(page, "refuted")
    result = re.match(r"refuted: (\S+) gives (\S+), expected (\S+), margin −\S+$", output)
    assert result and result[2] != result[3]
    page.click("#verdict button")
    expect(page.locator("#input")).to_have_value(result[1])
    expect(page.locator("#answer")).to_have_text(result[2])
    page.click("#undo")
    assert verdict(page, "proved") == margin


def test_a_page_opened_by_a_ticket_can_be_opened_again(chromium, server):
    page = chromium.new_page()
    page.goto(f"{server.one_time_address}#step=1")
    page.wait_for_selector("#refs option", state="attached")
    assert page.url.startswith(f"{server.address}#")
    page.reload()
    page.wait_for_selector("#refs option", state="attached")
    page.close()


def test_proofs_after_edits_can_be_turned_off(page):
    page.uncheck("#after")
    box = page.locator("#weights .cell input")
    box.fill("-9999")
    box.press("Enter")
    expect(page.locator("#score")).to_have_class("broken")
    assert page.text_content("#verdict") == ""
    page.click("#verify")
    assert "wrong of 100" in verdict(page, "refuted")


def edit(page, value):
    box = page.locator("#weights .cell input")
    box.fill(value)
    box.press("Enter")


def cleared(page):
    """The shown model has no verdict and no running check."""
    judged = page.locator("#judged")
    expect(page.locator("#verdict")).to_have_text("")
    expect(judged).not_to_have_attribute("data-result", re.compile(""))
    expect(judged).not_to_have_attribute("data-state", re.compile(""))
    expect(page.locator("#stop")).to_be_hidden()


def test_a_verdict_disappears_with_its_model(page):
    page.uncheck("#after")
    page.click("#prove")
    verdict(page, "proved")
    edit(page, "-9999")
    cleared(page)
    page.click("#verify")
    verdict(page, "refuted")
    page.click("#undo")
    cleared(page)


def test_a_late_verdict_is_dropped(page, server):
    page.uncheck("#after")
    page.fill("#ref", "addition:digits=3")
    page.press("#ref", "Enter")
    expect(page.locator("#title")).to_have_text("addition:digits=3")

    def for_hours(route):
        asked = route.request.post_data_json | {"sample": 10**9}
        route.continue_(post_data=json.dumps(asked))

    page.route("**/api/verify", for_hours)
    page.click("#verify")
    expect(page.locator("#verdict")).to_contain_text("% of 1,000,", timeout=PATIENCE)
    edit(page, "-9999")
    cleared(page)
    job = list(server.jobs.by_id.values())[-1]
    for _ in range(1_200):
        if job.state != "running":
            break
        page.wait_for_timeout(50)
    assert job.state == "stopped"
    cleared(page)


def test_a_verdict_ignores_interventions_and_says_so(page):
    page.click("#prove")
    assert "interventions" not in verdict(page, "proved")
    page.keyboard.press("x")  # silences the head that is chosen
    expect(page.locator("#verdict")).to_contain_text("without the interventions shown")
    assert verdict(page, "proved")
    page.keyboard.press("u")
    expect(page.locator("#verdict")).not_to_contain_text("interventions")


def test_opening_models(page):
    page.fill("#ref", "additoin")
    page.press("#ref", "Enter")
    expect(page.locator("#ref-problem")).to_contain_text("did you mean addition")
    page.check("#beside")
    page.fill("#ref", "addition:digits=1,order=ones")
    page.press("#ref", "Enter")
    expect(page.locator("#title")).to_have_text(f"{ADDER}, addition:digits=1,order=ones")
    page.fill("#input", "3+9")
    expect(page.locator("#answer")).to_have_text("12")
    expect(page.locator("#answer-1")).to_have_text("21")
    page.click("#prove-1")
    expect(page.locator("#judged-1")).to_have_attribute("data-result", "proved", timeout=PATIENCE)


def test_markup_in_refs_sources_and_labels_stays_text(page, evil):
    page.fill("#ref", MARKUP)
    page.press("#ref", "Enter")
    expect(page.locator("#ref-problem")).to_contain_text("<img src=x")
    page.fill("#source-text", f'"""{MARKUP}"""\nlength = {MARKUP}\n')
    expect(page.locator("#source-errors li").first).to_contain_text("line 2")
    page.select_option("#source-kind", "taotp")
    expect(page.locator("#source-errors li").first).to_be_visible()
    page.fill("#ref", f"hello-world:message={MARKUP}")
    page.press("#ref", "Enter")
    expect(page.locator("#title")).to_contain_text("<script>")
    page.fill("#ref", str(evil / "evil.safetensors"))
    page.press("#ref", "Enter")
    expect(page.locator("#heads")).to_contain_text("<script>")
    page.click("#prove")
    verdict(page, "proved")
    assert page.locator("#columns img, #columns script, #python img").count() == 0


@pytest.mark.slow
def test_a_training_is_shown_and_stopped(page):
    page.fill("#train-task", "multiplication")  # not learned before the click arrives
    recipes = page.locator("#recipe option").all_text_contents()
    assert recipes[0] == "recipe of the task (auto)" and page.input_value("#recipe") == "auto"
    assert "fast" in recipes and "auto" not in recipes
    page.select_option("#recipe", "fast")  # the default ends by itself, soon
    page.fill("#train-steps", "1000000")
    page.click("#train")
    expect(page.locator("#train-charts svg.lines")).not_to_have_count(0, timeout=2 * PATIENCE)
    # two evaluations, so that there are two snapshots
    expect(page.locator("#train-status")).to_contain_text(
        re.compile(r"step [\d,]{3,} of"), timeout=2 * PATIENCE
    )
    page.click("#train-stop")
    expect(page.locator("#title")).to_contain_text("trained (fast, seed 0", timeout=PATIENCE)
    expect(page.locator("#train-status")).to_contain_text("interrupted after")
    expect(page.locator("#snapshots")).to_be_visible()
    page.click("#verify")  # it goes to the server whole, as a checkpoint
    output = re.compile("wrong of 10,000|right on 10,000")
    expect(page.locator("#verdict")).to_have_text(output, timeout=PATIENCE)
    page.fill("#snapshots", "0")  # another model: that of the first evaluation
    cleared(page)
    page.click("#verify")
    expect(page.locator("#verdict")).to_have_text(output, timeout=PATIENCE)
    page.press("#snapshots", "End")  # and back
    cleared(page)


def test_the_full_domain_phase_is_shown(page):
    """The full-domain phase may go beyond the steps of the recipe, or start before their end."""
    seen = {"kind": "evaluation", "loss": 0.5, "accuracy": 0.75, "digits": [0.75, 1.0]}
    first = [seen | {"step": 4_000}, {"kind": "stable", "step": 4_000}]
    look = {"kind": "domain checked", "wrong": 7, "checked": 1_000_000, "coverage": "all rows"}
    then = [seen | {"step": 4_100, "phase": "full-domain"}, look | {"step": 4_100}]
    results = [(None, []), (4_000, first), (4_200, then), (4_300, [])]

    def answer(route):
        step, events = results.pop(0) if len(results) > 1 else results[0]
        progress = {"step": step, "steps": 4_000, "loss": 0.25, "names": []} if step else {}
        route.fulfill(json={"state": "running", "progress": progress, "events": events})

    page.route("**/api/train", lambda route: route.fulfill(json={"job": "mine"}))
    page.route("**/api/jobs/mine**", answer)
    page.evaluate("""() => {
        globalThis.said = [];
        const place = document.getElementById("train-status");
        new MutationObserver(() => said.push(place.textContent)).observe(place, {childList: true});
    }""")
    page.click("#train")
    last = "step 4,300, in the full-domain phase, loss 0.25, "
    last += "7 wrong of 1,000,000 (all rows) at step 4,100"
    expect(page.locator("#train-status")).to_have_text(last)
    begun = "step 4,000 of 4,000, loss 0.25, 75 % of held-out rows right, stable at step 4,000"
    assert page.evaluate("() => said")[:2] == ["starting …", "starting …"]
    assert begun in page.evaluate("() => said")
    page.evaluate("() => { said.length = 0; }")
    page.click("#train-stop")
    page.wait_for_function("() => said.length > 3")  # until it is over
    assert {*page.evaluate("() => said.slice(1)")} == {"stopping …"}
    page.unroute("**/api/jobs/mine**")
    over = {"state": "stopped", "progress": {}, "events": [], "errors": [], "result": None}
    page.route("**/api/jobs/mine**", lambda route: route.fulfill(json=over))
    expect(page.locator("#train-status")).to_have_text("stopped")


def test_a_closed_server_is_reported(chromium):
    with serving([ADDER]) as result:
        page = chromium.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(result.open.address)
        page.wait_for_selector("#refs option", state="attached")
    page.fill("#ref", "min")
    page.press("#ref", "Enter")
    expect(page.locator("#ref-problem")).to_contain_text("does not answer")
    page.fill("#input", "3+4")  # and the page itself lives
    expect(page.locator("#answer")).to_have_text("07")
    page.close()


COUNTED = """() => {
    const add = document.addEventListener;
    globalThis.added = [];
    document.addEventListener = (name, ...rest) => {
        added.push(name);
        add.call(document, name, ...rest);
    };
}"""


def test_other_models_add_no_listeners_to_the_document(page):
    page.evaluate(COUNTED)
    page.fill("#ref", "min:vocab=4")
    page.press("#ref", "Enter")
    expect(page.locator("#title")).to_have_text("min:vocab=4")
    assert page.evaluate("() => added") == []


def test_a_copied_link_holds_no_token(page, server):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy")
    expect(page.locator("#copy")).to_have_text("Copied")
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied.startswith(f"http://127.0.0.1:{server.port}/#model=") and "token" not in copied
