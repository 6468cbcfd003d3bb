"""A tree of XML elements, written as text and parsed again. Prints how long the text is."""

import xml.etree.ElementTree as xml

root = xml.Element("root")
for i in range(30000):
    item = xml.SubElement(root, "item", id=str(i))
    xml.SubElement(item, "name").text = f"name {i % 997}"
    xml.SubElement(item, "text").text = "word " * (i % 30)
for _ in range(3):
    text = xml.tostring(root)
    root = xml.fromstring(text)
print(len(text))
