"""What tests of pages share: a strict reader of HTML, and what to ask a browser."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "col", "br", "hr"}


class Tree(HTMLParser):
    """The elements of a page, and their texts; unbalanced tags are refused."""

    def __init__(self, source):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(source)
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag, attributes):
        assert len(dict(attributes)) == len(attributes), f"an attribute of {tag} is there twice"
        element = {"tag": tag, "text": "", "in": [e["tag"] for e in self._open], **dict(attributes)}
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attributes):
        assert any(e["tag"] == "svg" for e in self._open), f"<{tag}/> outside of a drawing"

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> too many"
        assert self._open.pop()["tag"] == tag, f"</{tag}> in the wrong place"

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data

    def tables(self, cls):
        """The tables of a class, each as rows of the texts of its cells."""
        found, inside = [], False
        for element in self.elements:
            if element["tag"] == "table":
                inside = cls in element.get("class", "").split()
                found += [[]] if inside else []
            elif inside and element["tag"] == "tr":
                found[-1].append([])
            elif inside and element["tag"] in ("td", "th"):
                found[-1][-1].append(plain(element["text"]))
        return found

    def all(self, tag, cls=None):
        return [e for e in self.elements if e["tag"] == tag and (cls is None or cls in e.get("class", "").split())]


def plain(text):
    return " ".join(text.split())


OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LOADED = "[...document.images].map(image => image.complete && image.naturalWidth > 0 && image.clientWidth > 0)"
# of every text: how much it stands out from what is behind it, at worst; backgrounds that shine through are mixed
CONTRAST = """(() => {
  const parse = text => {
    const parts = text.match(/[\\d.e-]+/g).map(Number);
    const whole = text.startsWith("color(") ? 255 : 1;  // shares of one, or numbers up to 255
    return [...parts.slice(0, 3).map(v => whole * v), parts[3] ?? 1];
  };
  const light = colour => [.2126, .7152, .0722].reduce((sum, weight, i) => {
    const v = colour[i] / 255;
    return sum + weight * (v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  }, 0);
  let worst = [99, ""];
  for (const element of document.querySelectorAll("body *")) {
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    let behind = element, mixed = [0, 0, 0], left = 1;
    while (behind && left > 1e-3) {
      const [r, g, b, a] = parse(getComputedStyle(behind).backgroundColor);
      mixed = mixed.map((v, i) => v + left * a * [r, g, b][i]);
      left *= 1 - a;
      behind = behind.parentElement;
    }
    mixed = mixed.map(v => v + left * 255);
    const style = getComputedStyle(element);
    const [a, b] = [light(mixed), light(parse(element instanceof SVGElement ? style.fill : style.color))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < worst[0]) worst = [ratio, element.outerHTML.slice(0, 200)];
  }
  return worst;
})()"""
