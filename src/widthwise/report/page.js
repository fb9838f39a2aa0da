// The page is complete without this. It marks where a reader is, and shows the numbers of a point at once.
const contents = document.querySelector("nav details"), links = [...document.querySelectorAll("nav a")];
const places = links.map(link => document.getElementById(link.hash.slice(1)));
const wide = matchMedia("(min-width: 1100px)");
let current;

function follow() {
  const tops = places.map(place => place.getBoundingClientRect().top);
  const end = scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
  const asked = links.findIndex(link => link.hash === location.hash);
  const seen = end && asked >= 0 && tops[asked] >= 0 && tops[asked] < innerHeight;
  const link = links[seen ? asked : Math.max(0, tops.findLastIndex(top => top < (end ? innerHeight : 100)))];
  if (link === current) return;
  current?.removeAttribute("aria-current");
  (current = link).setAttribute("aria-current", "true");
  contents.parentNode.scrollTop = link.offsetTop - contents.parentNode.clientHeight / 2;
}

if (contents) {
  const fold = () => { contents.open = wide.matches; };
  contents.parentNode.classList.add("follows");
  wide.addEventListener("change", fold);
  for (const change of ["scroll", "resize", "hashchange"]) addEventListener(change, () => requestAnimationFrame(follow));
  fold();
  follow();
}

const NEAR = 16, SAME = 4, MOST = 2;  // pixels, pixels, points
const tip = document.createElement("div"), points = new Map();
const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
tip.className = "tip";
tip.hidden = true;
ring.setAttribute("class", "ring");
ring.setAttribute("r", 4.5);
document.body.append(tip);

function read(svg) {  // the browser's own titles would appear as well
  return [...svg.querySelectorAll("use > title")].map(title => {
    const mark = title.parentNode, text = title.textContent;
    title.remove();
    return { x: +mark.getAttribute("x"), y: +mark.getAttribute("y"), text };
  });
}

function hide() {
  tip.hidden = true;
  ring.remove();
}

function show(event) {
  const svg = event.target.closest?.("figure svg");
  if (!svg) return hide();
  if (!points.has(svg)) points.set(svg, read(svg));
  const { a, d, e, f } = svg.getScreenCTM();
  const away = point => Math.hypot(point.x * a + e - event.clientX, point.y * d + f - event.clientY);
  const near = points.get(svg).filter(point => away(point) <= NEAR).sort((one, other) => away(one) - away(other));
  if (!near.length) return hide();
  const [first] = near, left = first.x * a + e, top = first.y * d + f;
  const same = near.filter(point => Math.hypot(point.x - first.x, point.y - first.y) * a <= SAME);
  tip.textContent = same.slice(0, MOST).map(point => point.text).join("\n\n");
  tip.hidden = false;
  tip.style.left = `${Math.max(4, Math.min(left + 12, document.documentElement.clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${top > tip.offsetHeight + 12 ? top - tip.offsetHeight - 10 : top + 12}px`;
  ring.setAttribute("cx", first.x);
  ring.setAttribute("cy", first.y);
  svg.append(ring);
}

for (const move of ["pointermove", "pointerdown"]) document.addEventListener(move, show);
addEventListener("scroll", hide, true);
